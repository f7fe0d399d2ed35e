package io.delayline;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.UUID;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Makes topics, as {@code mqadmin updateTopic} does. */
final class Topics {
    private Topics() {
    }

    static void make(String nameserver, String... topics) throws Exception {
        DefaultMQProducer admin = new DefaultMQProducer("topics");
        admin.setNamesrvAddr(nameserver);
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.start();
        for (String topic : topics) {
            // A busy broker may not answer in time.
            for (int at = 0; !isThere(admin, topic); at++) {
                if (at % 100 == 0) {
                    tryToMake(admin, topic);
                }
                Thread.sleep(20);
            }
        }
        admin.shutdown();
    }

    /** It has other parameters since 5.0. */
    private static void tryToMake(DefaultMQProducer admin, String topic) throws IllegalAccessException {
        try {
            make(admin, topic);
        } catch (InvocationTargetException failed) {
            System.out.println(topic + ": " + failed.getCause());
        }
    }

    private static void make(DefaultMQProducer admin, String topic)
            throws IllegalAccessException, InvocationTargetException {
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
