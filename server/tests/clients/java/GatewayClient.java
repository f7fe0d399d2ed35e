import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByRandom;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A plain RocketMQ client: sends orders to an inbox of Delayline, cancels and moves some, and says in one line of JSON
 * how they came out at the target. A run needs a seed that was not used before on the same topics, as orders are named
 * by it.
 */
public final class GatewayClient {
    private static final int SENDERS = 16;
    private static final int STARTS = 10;
    private static final int ASKERS = 8;
    private static final long ANSWER_MS = 10_000;
    private static final long PAUSE_MS = 300;
    private static final long LONGEST_PAUSE_MS = 5_000;
    /** How long after the last due time it still listens for what must not come. */
    private static final long QUIET_MS = 3_000;
    /** A change is asked for from right after the send until so long after the due time. */
    private static final long TOO_LATE_MS = 500;

    /** What Delayline adds to what comes out. */
    private static final Set<String> ADDED = Set.of("DELAYLINE_ID", "DELAYLINE_DUE_AT", "DELAYLINE_ATTEMPT");

    private final Options options;
    private final List<Order> orders;
    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer consumer;
    private final ScheduledExecutorService askers = Executors.newScheduledThreadPool(ASKERS);
    private final CountDownLatch assigned = new CountDownLatch(1);
    private final CountDownLatch sending;
    private final AtomicLong lastDue = new AtomicLong(now());
    private final AtomicInteger wrong = new AtomicInteger();

    private GatewayClient(Options options) {
        this.options = options;
        sending = new CountDownLatch(options.count);
        Random random = new Random(options.seed);
        orders = IntStream.range(0, options.count).mapToObj(number -> new Order(options, number, random)).toList();

        RPCHook account = options.accessKey == null ? null
                : new AclClientRPCHook(new SessionCredentials(options.accessKey, options.secretKey));
        // Groups of its own, so that it reads the target from its first message on.
        String group = "gateway-java-" + options.seed + "-" + now();
        producer = new DefaultMQProducer(group, account);
        consumer = new DefaultMQPushConsumer(group, account, new AllocateMessageQueueAveragely() {
            @Override
            public List<MessageQueue> allocate(String of, String self, List<MessageQueue> all, List<String> members) {
                List<MessageQueue> mine = super.allocate(of, self, all, members);
                // It is also asked for the group's retry topic.
                if (mine.stream().anyMatch(queue -> queue.getTopic().equals(options.target))) {
                    assigned.countDown();
                }
                return mine;
            }
        });
        for (ClientConfig config : List.of(producer, consumer)) {
            config.setNamesrvAddr(options.nameserver);
            // A broker learns by heartbeats where to push replies. The start of a consumer sends the first one, for the
            // producer too as they are one instance; after a restart of a broker the next would be due in up to 30 s.
            config.setInstanceName(group);
            config.setHeartbeatBrokerInterval(2_000);
            config.setPollNameServerInterval(5_000);
        }
    }

    public static void main(String[] arguments) {
        PrintStream out = quiet();
        Options options;
        try {
            options = new Options(arguments);
        } catch (IllegalArgumentException bad) {
            System.err.println(bad.getMessage());
            System.exit(2);
            return;
        }
        try {
            out.println(started(options).run());
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
        // Without farewells, which can take seconds: the groups are its own, so no consumer waits for its queues.
        System.exit(0);
    }

    /** Before any class of RocketMQ is loaded: its loggers write to the standard output, and to files in the home. */
    private static PrintStream quiet() {
        PrintStream out = System.out;
        System.setOut(System.err);
        String files = System.getProperty("java.io.tmpdir") + "/rocketmqlogs";
        // 5.x, which takes a broker's settings if those are on the class path too.
        System.setProperty("rmq.logback.configurationFile", "rmq.client.logback.xml");
        System.setProperty("rocketmq.log.level", "off");
        System.setProperty("rocketmq.log.root", files);
        // 4.x.
        System.setProperty("rocketmq.client.logLevel", "off");
        System.setProperty("rocketmq.client.logRoot", files);
        return out;
    }

    /** A start fails where a nameserver takes 3 s to answer, as on a busy machine; a service is then started again. */
    private static GatewayClient started(Options options) throws Exception {
        for (int left = STARTS; ; left--) {
            GatewayClient client = new GatewayClient(options);
            try {
                client.start();
                return client;
            } catch (MQClientException | IllegalStateException failed) {
                if (left == 1) {
                    throw failed;
                }
                say("start: " + failed);
            }
        }
    }

    private void start() throws Exception {
        producer.start();
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.target, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long at = now();
            messages.forEach(message -> receive(message, at));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private String run() throws Exception {
        if (!assigned.await(options.patience, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("there was no queue of " + options.target + " to read");
        }

        AtomicInteger next = new AtomicInteger();
        for (int i = 0; i < SENDERS; i++) {
            Thread sender = new Thread(() -> {
                for (int number; (number = next.getAndIncrement()) < options.count; ) {
                    send(orders.get(number));
                    sending.countDown();
                }
            });
            sender.setDaemon(true);
            sender.start();
        }
        while (!isPatienceOver() && !isComplete()) {
            Thread.sleep(50);
        }
        return report();
    }

    /** Everything that is expected has come, and what is not had time to. */
    private boolean isComplete() {
        return now() >= lastDue.get() + QUIET_MS && sending.getCount() == 0
                && orders.stream().noneMatch(order -> order.isUnanswered() || order.isMissing());
    }

    private boolean isPatienceOver() {
        return now() >= lastDue.get() + options.patience;
    }

    // --- What goes in -------------------------------------------------------------------------------------------

    private void send(Order order) {
        long before = now();
        awaitUntil(before + order.delay);
        Message message = order.message(before);
        while (!isPatienceOver()) {
            try {
                // Once more if it fails, though it may be in already: then the key makes it the same task.
                producer.send(message);
                order.wasSent(before, now());
                break;
            } catch (InterruptedException stopped) {
                return;
            } catch (Exception failed) {
                say("send " + order.key + ": " + failed);
                pause();
            }
        }
        if (order.isUnanswered() && !isPatienceOver()) {
            askers.schedule(() -> ask(order, PAUSE_MS), order.changeAfter, TimeUnit.MILLISECONDS);
        }
    }

    /**
     * Asks for the change until there is an answer that is the last word. Of the client's ways to ask, this one waits
     * for the reply in all releases: in 5.3.1 to 5.3.3 the blocking ones give up as soon as the request is sent, and a
     * callback without a selector of queues is called then, with null, since 4.9.4.
     */
    private void ask(Order order, long pause) {
        Message request = order.request(now());
        awaitUntil(order.movedTo);
        // Completed once, though the client may both throw and call back.
        CompletableFuture<Message> reply = new CompletableFuture<>();
        try {
            producer.request(request, new SelectMessageQueueByRandom(), null, new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    reply.complete(message);
                }

                @Override
                public void onException(Throwable failure) {
                    reply.completeExceptionally(failure);
                }
            }, ANSWER_MS);
        } catch (Exception failure) {
            reply.completeExceptionally(failure);
        }
        reply.thenApply(message -> {
            String answer = new String(message.getBody(), StandardCharsets.UTF_8);
            boolean isLastWord = order.follow(field(answer, "answer"), field(answer, "state"), now());
            if (!isLastWord) {
                say(order.key + " was answered " + answer);
            }
            return isLastWord;
        }).exceptionally(failure -> {
            // No answer in time, or the request could not be sent. Whether it will be obeyed is not known.
            say("ask " + order.key + ": " + failure.getCause());
            return false;
        }).thenAccept(isLastWord -> {
            if (!isLastWord && !isPatienceOver()) {
                long next = Math.min(2 * pause, LONGEST_PAUSE_MS);
                askers.schedule(() -> ask(order, next), pause, TimeUnit.MILLISECONDS);
            }
        });
    }

    private void awaitUntil(long due) {
        lastDue.accumulateAndGet(due, Math::max);
    }

    private static void pause() {
        try {
            Thread.sleep(PAUSE_MS);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** The first field of this name that is a string, wherever it is in the JSON; else "". */
    private static String field(String json, String name) {
        Matcher field = Pattern.compile("\"" + name + "\"\\s*:\\s*\"([^\"]*)\"").matcher(json);
        return field.find() ? field.group(1) : "";
    }

    // --- What comes out -----------------------------------------------------------------------------------------

    private void receive(MessageExt message, long at) {
        Order order = find(message);
        if (order == null) {
            return;
        }
        if (!order.isIntact(message)) {
            wrong.incrementAndGet();
            say("wrong: " + new String(message.getBody(), StandardCharsets.UTF_8) + " " + message.getProperties());
        }
        order.arrived(at, String.valueOf(message.getUserProperty("DELAYLINE_ID")));
    }

    /** Null for those of other runs, which are told by their keys. */
    private Order find(MessageExt message) {
        Matcher key = Pattern.compile("order-(-?\\d+)-(\\d+)").matcher(String.valueOf(message.getKeys()));
        String number = String.valueOf(message.getUserProperty("number"));
        if (key.matches()) {
            if (!key.group(1).equals(String.valueOf(options.seed))) {
                return null;
            }
            number = key.group(2);
        }
        try {
            return orders.get(Integer.parseInt(number));
        } catch (NumberFormatException | IndexOutOfBoundsException unknown) {
            return null;
        }
    }

    private String report() {
        List<Order> sent = orders.stream().filter(order -> order.sent).toList();
        List<Order> received = orders.stream().filter(order -> order.arrivedAt != 0).toList();
        List<Long> late = received.stream().filter(order -> order.sent)
                .map(order -> Math.max(0, order.arrivedAt - order.due)).sorted().toList();
        for (Order order : orders) {
            if (order.isMissing() || order.isUnwanted() || order.isEarly() || order.isOutBefore()
                    || order.isUnanswered()) {
                say(order.toString());
            }
        }
        Map<String, Number> counts = new LinkedHashMap<>();
        counts.put("sent", sent.size());
        counts.put("cancelled", sent.stream().filter(order -> order.fate == Fate.CANCELLED).count());
        counts.put("moved", sent.stream().filter(order -> order.fate == Fate.MOVED).count());
        counts.put("too_late", sent.stream().filter(order -> order.fate == Fate.TOO_LATE).count());
        counts.put("received", received.size());
        counts.put("repeats", received.stream().mapToInt(order -> order.repeats).sum());
        counts.put("twice", received.stream().mapToInt(order -> order.ids.size() - 1).sum());
        counts.put("early", received.stream().filter(Order::isEarly).count());
        counts.put("missing", sent.stream().filter(Order::isMissing).count());
        counts.put("unwanted", received.stream().filter(Order::isUnwanted).count());
        counts.put("out_before", received.stream().filter(Order::isOutBefore).count());
        counts.put("wrong", wrong.get());
        counts.put("unanswered", sent.stream().filter(Order::isUnanswered).count());
        counts.put("late_p50_ms", percentile(late, 50));
        counts.put("late_p99_ms", percentile(late, 99));
        return counts.entrySet().stream().map(count -> "\"" + count.getKey() + "\":" + count.getValue())
                .collect(Collectors.joining(",", "{", "}"));
    }

    private static long percentile(List<Long> sorted, int percent) {
        return sorted.isEmpty() ? 0 : sorted.get((sorted.size() - 1) * percent / 100);
    }

    private static long now() {
        return System.currentTimeMillis();
    }

    private static void say(String line) {
        System.err.println(Instant.now() + " " + line);
    }

    private enum Change { NONE, CANCEL, RESCHEDULE }

    /** What the answers say; OPEN as long as there was none, or none was asked for. */
    private enum Fate { OPEN, CANCELLED, MOVED, TOO_LATE }

    /** One message, and what became of it. What is not final is guarded by its monitor. */
    private static final class Order {
        final Options options;
        final int number;
        final String key;
        /** A topic whose target the server knows. */
        final boolean isRouted;
        final long delay;
        final Change change;
        final long changeAfter;
        final long newDelay;

        boolean sent;
        /** Not before this, and it is late from then on. They differ where the broker's clock counts. */
        long earliest;
        long due;
        /** What earliest was before it was moved. */
        long firstPlanned;
        long movedTo;
        Fate fate = Fate.OPEN;
        long answeredAt;

        long arrivedAt;
        long lastArrived;
        int repeats;
        final Set<String> ids = new HashSet<>();

        Order(Options options, int number, Random random) {
            this.options = options;
            this.number = number;
            key = "order-" + options.seed + "-" + number;
            isRouted = options.routeInbox != null && number % 10 == 9;
            delay = between(random, options.shortest, options.longest);
            change = random.nextInt(3) > 0 ? Change.NONE : random.nextBoolean() ? Change.CANCEL : Change.RESCHEDULE;
            changeAfter = between(random, 0, delay + TOO_LATE_MS);
            newDelay = between(random, options.shortest, options.longest);
        }

        private static long between(Random random, long least, long most) {
            return least + random.nextInt((int) (most - least + 1));
        }

        Message message(long now) {
            Message message = new Message(inbox(), "t", key, body().getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("number", String.valueOf(number));
            address(message);
            switch (number % 3) {
                case 0 -> message.putUserProperty("DELAYLINE_AFTER", after());
                case 1 -> message.putUserProperty("DELAYLINE_AT", Instant.ofEpochMilli(now + delay).toString());
                default -> message.putUserProperty("__STARTDELIVERTIME", String.valueOf(now + delay));
            }
            return message;
        }

        /** The ways in which a duration may be written. */
        private String after() {
            return switch (number / 3 % 3) {
                case 0 -> String.valueOf(delay);
                case 1 -> delay + "ms";
                default -> {
                    String minutes = delay >= 60_000 ? delay / 60_000 + "m" : "";
                    yield minutes + delay / 1_000 % 60 + "s" + delay % 1_000 + "ms";
                }
            };
        }

        /** The same time at each repetition: so one that comes late does no harm. */
        synchronized Message request(long now) {
            // The client refuses to send an empty body.
            Message request = new Message(inbox(), change.name().toLowerCase().getBytes(StandardCharsets.UTF_8));
            address(request);
            request.putUserProperty("DELAYLINE_ACTION", change.name().toLowerCase());
            if (change == Change.RESCHEDULE) {
                movedTo = movedTo == 0 ? now + newDelay : movedTo;
                request.putUserProperty("DELAYLINE_AT", Instant.ofEpochMilli(movedTo).toString());
            }
            return request;
        }

        private void address(Message message) {
            message.putUserProperty("DELAYLINE_KEY", key);
            if (!isRouted) {
                message.putUserProperty("DELAYLINE_TOPIC", options.target);
            }
        }

        private String inbox() {
            return isRouted ? options.routeInbox : options.inbox;
        }

        private String body() {
            return "{\"order\":" + number + "}";
        }

        synchronized void wasSent(long before, long after) {
            sent = true;
            firstPlanned = before + delay;
            earliest = firstPlanned;
            due = number % 3 == 0 ? after + delay : Math.max(before + delay, after);
        }

        /** Whether the answer is the last word. */
        synchronized boolean follow(String answer, String state, long at) {
            switch (answer) {
                case "done" -> fate = change == Change.CANCEL ? Fate.CANCELLED : Fate.MOVED;
                case "too_late", "running" -> {
                    // Whether a cancel was, is known when the order has ended: if the server that has it is killed, this
                    // request that comes in twice, or an earlier one that was not answered, may be obeyed yet.
                    if (change == Change.CANCEL) {
                        return false;
                    }
                    fate = Fate.TOO_LATE;
                }
                case "finished" -> {
                    // If it is cancelled, then by an earlier request of ours that was not answered.
                    boolean isOurs = change == Change.CANCEL && state.equals("cancelled");
                    fate = isOurs ? Fate.CANCELLED : Fate.TOO_LATE;
                }
                case "cancelled", "not_found" -> {
                    // A cancel that has overtaken the order holds; a new time for what is not there does not.
                    if (change != Change.CANCEL) {
                        return false;
                    }
                    fate = Fate.CANCELLED;
                }
                default -> {
                    return false;
                }
            }
            answeredAt = at;
            if (fate == Fate.MOVED) {
                earliest = movedTo;
                due = movedTo;
            } else if (fate == Fate.TOO_LATE && change == Change.RESCHEDULE) {
                // It may have gone out at the new time: by a request that was not answered, or that was dealt with twice.
                earliest = Math.min(earliest, movedTo);
                due = Math.max(due, movedTo);
            }
            return true;
        }

        synchronized boolean isIntact(MessageExt message) {
            return body().equals(new String(message.getBody(), StandardCharsets.UTF_8))
                    && "t".equals(message.getTags())
                    && key.equals(message.getKeys())
                    && String.valueOf(number).equals(message.getUserProperty("number"))
                    && message.getProperties().keySet().stream().noneMatch(Order::isInstruction)
                    && message.getUserProperty("DELAYLINE_ID") != null
                    && isNumber(message.getUserProperty("DELAYLINE_DUE_AT"))
                    && isNumber(message.getUserProperty("DELAYLINE_ATTEMPT"));
        }

        /** What is for Delayline alone, and so must not be on what comes out. */
        private static boolean isInstruction(String name) {
            return name.equals("__STARTDELIVERTIME") || name.startsWith("DELAYLINE_") && !ADDED.contains(name);
        }

        private static boolean isNumber(String text) {
            return text != null && text.matches("\\d+");
        }

        synchronized void arrived(long at, String id) {
            arrivedAt = arrivedAt == 0 ? at : arrivedAt;
            lastArrived = at;
            if (!ids.add(id)) {
                repeats++;
            }
        }

        synchronized boolean isUnanswered() {
            return sent && change != Change.NONE && fate == Fate.OPEN;
        }

        /** A cancel that was never answered may have been obeyed. */
        synchronized boolean isMissing() {
            boolean isExpected = sent && fate != Fate.CANCELLED && !(change == Change.CANCEL && fate == Fate.OPEN);
            return isExpected && arrivedAt == 0;
        }

        /** It had come out when it was cancelled or moved, which a server did not know that was killed in between. */
        synchronized boolean isOutBefore() {
            boolean isOut = arrivedAt >= firstPlanned && arrivedAt != 0 && arrivedAt <= answeredAt;
            return isOut && (fate == Fate.CANCELLED || fate == Fate.MOVED && arrivedAt < movedTo);
        }

        synchronized boolean isUnwanted() {
            return fate == Fate.CANCELLED && arrivedAt != 0 && (!isOutBefore() || lastArrived > answeredAt);
        }

        synchronized boolean isEarly() {
            boolean mayBeMoved = fate == Fate.OPEN && movedTo != 0;
            return arrivedAt != 0 && arrivedAt < (mayBeMoved ? Math.min(earliest, movedTo) : earliest) && !isOutBefore();
        }

        @Override
        public synchronized String toString() {
            return key + ": sent " + sent + ", " + change + " " + fate + ", due at " + due + ", came at " + arrivedAt
                    + " as " + ids;
        }
    }

    private static final class Options {
        private static final List<String> NAMES = List.of("nameserver", "inbox", "target", "count", "seed",
                "shortest-ms", "longest-ms", "patience-ms", "access-key", "secret-key", "route-inbox");

        final String nameserver;
        final String inbox;
        final String target;
        final int count;
        final long seed;
        final long shortest;
        final long longest;
        final long patience;
        final String accessKey;
        final String secretKey;
        final String routeInbox;

        Options(String[] arguments) {
            Map<String, String> given = new LinkedHashMap<>();
            for (int i = 0; i < arguments.length; i += 2) {
                String name = arguments[i].startsWith("--") ? arguments[i].substring(2) : "";
                require(NAMES.contains(name) && i + 1 < arguments.length,
                        "unknown, or without a value: " + arguments[i]);
                given.put(name, arguments[i + 1]);
            }
            for (String name : List.of("nameserver", "inbox", "target")) {
                require(given.containsKey(name), "--" + name + " is needed");
            }
            nameserver = given.get("nameserver");
            inbox = given.get("inbox");
            target = given.get("target");
            accessKey = given.get("access-key");
            secretKey = given.get("secret-key");
            routeInbox = given.get("route-inbox");
            count = Integer.parseInt(given.getOrDefault("count", "1000"));
            seed = Long.parseLong(given.getOrDefault("seed", "1"));
            shortest = Integer.parseInt(given.getOrDefault("shortest-ms", "300"));
            longest = Integer.parseInt(given.getOrDefault("longest-ms", "20000"));
            patience = Long.parseLong(given.getOrDefault("patience-ms", "120000"));
            require(count >= 0 && shortest >= 0 && longest >= shortest && longest < 1L << 30 && patience >= 0,
                    "a number is out of range");
            require((accessKey == null) == (secretKey == null), "--access-key and --secret-key go together");
        }

        private static void require(boolean isSo, String otherwise) {
            if (!isSo) {
                throw new IllegalArgumentException(otherwise + "; the options are "
                        + NAMES.stream().map(name -> "--" + name).collect(Collectors.joining(" ")));
            }
        }
    }
}
