package io.delayline.spring;

import io.delayline.Delayline;
import io.delayline.HttpDelayline;
import io.delayline.RocketMqDelayline;
import java.time.Duration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Primary;
import org.springframework.core.env.Environment;

/**
 * Makes a {@link RocketMqDelayline} where {@code delayline.nameserver} is set, and a {@link HttpDelayline} where
 * {@code delayline.url} is. Where both are, a dependency on {@link Delayline} gets the first.
 *
 * <p>Further properties, all of them optional: {@code delayline.group} (the name of the application), {@code delayline.inbox},
 * {@code delayline.reply-topic}, {@code delayline.token}, {@code delayline.kind} and {@code delayline.timeout}. A bean of an
 * application's own takes the place of the one of its type; one that is another {@link Delayline}, or is declared as one, that of
 * both.
 */
@Configuration(proxyBeanMethods = false)
public class DelaylineAutoConfiguration {

    @Bean
    @Primary
    @ConditionalOnMissingBean(value = Delayline.class, ignored = HttpDelayline.class)
    @ConditionalOnProperty("delayline.nameserver")
    RocketMqDelayline rocketMqDelayline(Environment environment) {
        String application = environment.getProperty("spring.application.name", "delayline");
        String nameserver = environment.getRequiredProperty("delayline.nameserver");
        String group = environment.getProperty("delayline.group", application);
        RocketMqDelayline delayline = RocketMqDelayline.connect(nameserver, group)
                .inbox(environment.getProperty("delayline.inbox", "delayline_in"))
                .timeout(timeout(environment));
        String replyTopic = environment.getProperty("delayline.reply-topic");
        return replyTopic == null ? delayline : delayline.replyTopic(replyTopic);
    }

    @Bean
    @ConditionalOnMissingBean(value = Delayline.class, ignored = RocketMqDelayline.class)
    @ConditionalOnProperty("delayline.url")
    HttpDelayline httpDelayline(Environment environment) {
        return new HttpDelayline(environment.getRequiredProperty("delayline.url"))
                .token(environment.getProperty("delayline.token"))
                .kind(environment.getProperty("delayline.kind"))
                .timeout(timeout(environment));
    }

    private static Duration timeout(Environment environment) {
        return environment.getProperty("delayline.timeout", Duration.class, Duration.ofSeconds(3));
    }
}
