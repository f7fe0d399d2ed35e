/**
 * Delays messages and tasks by Delayline, and changes them by the caller's own key: over RocketMQ's client
 * ({@link io.delayline.RocketMqDelayline}) or over HTTP ({@link io.delayline.HttpDelayline}).
 */
package io.delayline;
