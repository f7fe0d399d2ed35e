package io.delayline.spring;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.delayline.Delayline;
import io.delayline.DelaylineException;
import io.delayline.HttpDelayline;
import io.delayline.RocketMqDelayline;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** In an application that has nothing but its properties: nothing here names the configuration. */
class DelaylineAutoConfigurationTest {
    @Configuration
    @EnableAutoConfiguration
    static class Shop {
    }

    @Configuration
    @EnableAutoConfiguration
    static class ShopWithItsOwn {
        static final HttpDelayline OWN = new HttpDelayline("http://127.0.0.1:2");

        @Bean
        HttpDelayline own() {
            return OWN;
        }
    }

    @Configuration
    @EnableAutoConfiguration
    static class ShopWithAnother {
        @Bean
        Delayline own() {
            return ShopWithItsOwn.OWN;
        }
    }

    private static ConfigurableApplicationContext run(Class<?> application, String... properties) {
        return new SpringApplicationBuilder(application).web(WebApplicationType.NONE).logStartupInfo(false).run(properties);
    }

    @Test
    void withoutPropertiesThereIsNone() {
        try (ConfigurableApplicationContext context = run(Shop.class)) {
            assertEquals(0, context.getBeanNamesForType(Delayline.class).length);
        }
    }

    @Test
    void aUrlMakesOneOverHttp() {
        try (ConfigurableApplicationContext context = run(Shop.class, "--delayline.url=http://127.0.0.1:1", "--delayline.kind=k",
                "--delayline.timeout=1s", "--delayline.token=t")) {
            Delayline delayline = context.getBean(Delayline.class);
            assertTrue(delayline instanceof HttpDelayline);
            // By the kind, else there would be none to ask for.
            assertThrows(DelaylineException.class, () -> delayline.cancel("a"));
        }
        try (ConfigurableApplicationContext context = run(ShopWithItsOwn.class, "--delayline.url=http://127.0.0.1:1")) {
            assertEquals(ShopWithItsOwn.OWN, context.getBean(Delayline.class));
        }
    }

    @Test
    void oneOfAnApplicationsOwnTakesThePlaceOfThatOfItsType() {
        String[] both = {"--delayline.nameserver=127.0.0.1:1", "--delayline.url=http://127.0.0.1:1"};
        try (ConfigurableApplicationContext context = run(ShopWithItsOwn.class, both)) {
            assertEquals(ShopWithItsOwn.OWN, context.getBean(HttpDelayline.class));
            assertTrue(context.getBean(Delayline.class) instanceof RocketMqDelayline);
        }
        try (ConfigurableApplicationContext context = run(ShopWithAnother.class, both)) {
            assertArrayEquals(new String[] {"own"}, context.getBeanNamesForType(Delayline.class));
        }
    }

    @Test
    void aNameserverMakesOneOverRocketMqThatComesFirst() {
        try (ConfigurableApplicationContext context = run(Shop.class, "--delayline.nameserver=127.0.0.1:1",
                "--delayline.url=http://127.0.0.1:1", "--delayline.timeout=200ms", "--delayline.inbox=in")) {
            Delayline delayline = context.getBean(Delayline.class);
            assertTrue(delayline instanceof RocketMqDelayline);
            assertEquals(1, context.getBeanNamesForType(HttpDelayline.class).length);
            DelaylineException lost = assertThrows(DelaylineException.class, () -> delayline.cancel("a"));
            assertTrue(lost.getMessage().startsWith("no answer within PT0.2S"), lost.getMessage());
        }
    }
}
