/** Gives applications of Spring Boot 2 and 3 a {@link io.delayline.Delayline} by their properties. */
package io.delayline.spring;
