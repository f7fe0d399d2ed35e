package io.delayline;

import java.time.Duration;
import java.util.UUID;

/** A server with a gateway, whose topics and groups were never there before, on the brokers of {@code DELAYLINE_ROCKETMQ}. */
final class Gateway implements AutoCloseable {
    final String name = unique();
    final String in = name + "_in";
    final String out = name + "_out";
    final String answers = name + "_answers";
    final Server server;

    Gateway() throws Exception {
        // The inbox it makes itself.
        Topics.make(Server.nameserver(), out, answers);
        server = Server.configured(String.format("[rocketmq]%nnameserver = \"%s\"%ntopic = \"%2$s_wakes\"%ngroup = \"%2$s_wakes\"%n"
                + "[gateway]%ninbox = \"%2$s_in\"%ngroup = \"%2$s\"%ntargets = [\"%2$s_out\"]%nreplies = [\"%2$s_answers\"]%n",
                Server.nameserver(), name));
    }

    static String unique() {
        return "shop" + UUID.randomUUID().toString().replace("-", "");
    }

    /** A client of a group that is new. It waits for longer than usual, as the machine may be busy. */
    RocketMqDelayline connect(boolean byTopic) {
        RocketMqDelayline delayline = RocketMqDelayline.connect(Server.nameserver(), unique()).inbox(in)
                .timeout(Duration.ofSeconds(60));
        return byTopic ? delayline.replyTopic(answers) : delayline;
    }

    @Override
    public void close() throws InterruptedException {
        server.close();
    }
}
