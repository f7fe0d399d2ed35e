package io.delayline;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Collections;
import java.util.UUID;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Makes topics, as {@code mqadmin updateTopic} does: {@code Topics NAMESERVER TOPIC…}. */
final class Topics {
    private Topics() {
    }

    public static void main(String[] arguments) throws Exception {
        make(arguments[0], Arrays.copyOfRange(arguments, 1, arguments.length));
    }

    static void make(String nameserver, String... topics) throws Exception {
        DefaultMQProducer admin = new DefaultMQProducer("topics");
        admin.setNamesrvAddr(nameserver);
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.start();
        for (String topic : topics) {
            make(admin, topic);
            while (!isThere(admin, topic)) {
                Thread.sleep(20);
            }
        }
        admin.shutdown();
    }

    /** It has other parameters since 5.0. */
    private static void make(DefaultMQProducer admin, String topic) throws ReflectiveOperationException {
        for (Method method : DefaultMQProducer.class.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (method.getName().equals("createTopic") && types.length == 3) {
                method.invoke(admin, "TBW102", topic, 4);
            } else if (method.getName().equals("createTopic") && types.length == 4 && !types[3].isPrimitive()) {
                method.invoke(admin, "TBW102", topic, 4, Collections.emptyMap());
            }
        }
    }

    private static boolean isThere(DefaultMQProducer admin, String topic) {
        try {
            return !admin.fetchPublishMessageQueues(topic).isEmpty();
        } catch (MQClientException missing) {
            return false;
        }
    }
}
