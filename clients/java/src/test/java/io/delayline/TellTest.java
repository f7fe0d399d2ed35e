package io.delayline;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;

class TellTest {
    /** A broker answers so by chance, so the client's producer is made to. */
    private static RocketMqDelayline answered(SendStatus status) {
        return new RocketMqDelayline(new DefaultMQProducer("shop") {
            @Override
            public SendResult send(Message message, MessageQueueSelector selector, Object key) {
                SendResult result = new SendResult();
                result.setSendStatus(status);
                return result;
            }
        });
    }

    @Test
    void whatABrokerMayLoseIsNotHandedOver() {
        for (SendStatus status : SendStatus.values()) {
            try (RocketMqDelayline delayline = answered(status)) {
                Command command = Command.cancel("order-42");
                switch (status) {
                    case SEND_OK:
                    case SLAVE_NOT_AVAILABLE:
                        assertDoesNotThrow(() -> delayline.tell(command));
                        break;
                    default:
                        assertThrows(NoAnswerException.class, () -> delayline.tell(command));
                }
            }
        }
    }
}
