// A plain RocketMQ client: sends orders to an inbox of Delayline, cancels and moves some, and says in one line of JSON
// how they came out at the target. A run needs a seed that was not used before on the same topics, as orders are named
// by it.
//
// Answers come as replies to requests (Producer.Request), which works, so no reply topic is needed. Release 2.1.2 of
// the client wants care there:
//   - When the send of a request is not answered, a callback panics: the end of the process, without a PanicHandler.
//   - A request for a topic that exists sends no heartbeat first, without which a broker does not know where to push
//     the reply. So the producer starts before the consumer, whose start sends one for both: they share a client id.
//   - After a restart of a broker the next heartbeat is due in up to 30 s, which cannot be set. Until then requests get
//     no reply, and are repeated.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	senders       = 16
	answerTimeout = 10 * time.Second
	pause         = 300 * time.Millisecond
	longestPause  = 5 * time.Second
	// How long after the last due time it still listens for what must not come.
	quietMs = 3_000
)

type options struct {
	nameserver, inbox, target, routeInbox string
	accessKey, secretKey                  string
	count                                 int
	seed, shortest, longest, patience     int64
}

func parse() options {
	var o options
	flag.StringVar(&o.nameserver, "nameserver", "", "`HOST:PORT`")
	flag.StringVar(&o.inbox, "inbox", "", "`TOPIC` to send to")
	flag.StringVar(&o.target, "target", "", "`TOPIC` to read from")
	flag.StringVar(&o.routeInbox, "route-inbox", "", "`TOPIC` for every tenth order, whose target the server knows")
	flag.IntVar(&o.count, "count", 1000, "how many orders")
	flag.Int64Var(&o.seed, "seed", 1, "a part of their names, and what is done is decided by it")
	flag.Int64Var(&o.shortest, "shortest-ms", 300, "shortest delay")
	flag.Int64Var(&o.longest, "longest-ms", 20_000, "longest delay")
	flag.Int64Var(&o.patience, "patience-ms", 120_000, "how long to wait after the last due time")
	flag.StringVar(&o.accessKey, "access-key", "", "of an account")
	flag.StringVar(&o.secretKey, "secret-key", "", "of the account")
	flag.Parse()
	if o.nameserver == "" || o.inbox == "" || o.target == "" || flag.NArg() > 0 || o.count < 0 || o.shortest < 0 ||
		o.longest < o.shortest || o.patience < 0 || (o.accessKey == "") != (o.secretKey == "") {
		flag.Usage()
		os.Exit(2)
	}
	return o
}

func main() {
	options := parse()
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	rlog.SetLogLevel("fatal")
	primitive.PanicHandler = func(cause interface{}) { log.Print("in the client: ", cause) }

	run, err := start(options)
	if err != nil {
		log.Fatal(err)
	}
	var next atomic.Int64
	for i := 0; i < senders; i++ {
		go func() {
			for number := next.Add(1) - 1; number < int64(len(run.orders)); number = next.Add(1) - 1 {
				run.send(run.orders[number])
			}
		}()
	}
	for !run.isComplete() && !run.isPatienceOver() {
		time.Sleep(50 * time.Millisecond)
	}
	// The end is without farewells, which can take seconds: the groups are its own, so no consumer waits for its queues.
	fmt.Println(run.report())
}

type run struct {
	options
	orders   []*order
	producer rocketmq.Producer
	consumer rocketmq.PushConsumer
	lastDue  atomic.Int64
	settled  atomic.Int64
	wrong    atomic.Int64
}

// start returns once there are queues of the target to read from.
func start(options options) (*run, error) {
	r := &run{options: options}
	r.lastDue.Store(now())
	random := rand.New(rand.NewSource(options.seed))
	for number := 0; number < options.count; number++ {
		r.orders = append(r.orders, newOrder(&r.options, number, random))
	}

	// Groups of its own, so that it reads the target from its first message on.
	group := fmt.Sprintf("gateway-go-%d-%d", options.seed, now())
	nameserver := primitive.NewPassthroughResolver([]string{options.nameserver})
	account := primitive.Credentials{AccessKey: options.accessKey, SecretKey: options.secretKey}
	assigned := make(chan struct{})
	var once sync.Once
	var err error
	r.producer, err = rocketmq.NewProducer(producer.WithGroupName(group), producer.WithNsResolver(nameserver),
		producer.WithCredentials(account))
	if err != nil {
		return nil, err
	}
	r.consumer, err = rocketmq.NewPushConsumer(
		consumer.WithGroupName(group), consumer.WithNsResolver(nameserver), consumer.WithCredentials(account),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithStrategy(func(group, self string, all []*primitive.MessageQueue,
			members []string) []*primitive.MessageQueue {
			mine := consumer.AllocateByAveragely(group, self, all, members)
			// It is also asked for the group's retry topic.
			if len(mine) > 0 && mine[0].Topic == options.target {
				once.Do(func() { close(assigned) })
			}
			return mine
		}))
	if err != nil {
		return nil, err
	}
	err = r.consumer.Subscribe(options.target, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			at := now()
			for _, message := range messages {
				r.receive(message, at)
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return nil, err
	}
	if err := r.producer.Start(); err != nil {
		return nil, err
	}
	if err := r.consumer.Start(); err != nil {
		return nil, err
	}
	select {
	case <-assigned:
		return r, nil
	case <-time.After(time.Duration(options.patience) * time.Millisecond):
		return nil, fmt.Errorf("there was no queue of %s to read", options.target)
	}
}

// isComplete: everything that is expected has come, and what is not had time to.
func (r *run) isComplete() bool {
	return now() >= r.lastDue.Load()+quietMs && r.settled.Load() == int64(len(r.orders)) &&
		!slices.ContainsFunc(r.orders, func(o *order) bool {
			o.Lock()
			defer o.Unlock()
			return o.isMissing()
		})
}

func (r *run) isPatienceOver() bool {
	return now() >= r.lastDue.Load()+r.patience
}

func (r *run) awaitUntil(due int64) {
	for last := r.lastDue.Load(); due > last && !r.lastDue.CompareAndSwap(last, due); last = r.lastDue.Load() {
	}
}

// --- What goes in ---------------------------------------------------------------------------------------------------

// send sends the order, once more if it fails, though it may be in already: then the key makes it the same task.
func (r *run) send(order *order) {
	before := now()
	r.awaitUntil(before + order.delay)
	message := order.message(before)
	for !r.isPatienceOver() {
		_, err := r.producer.SendSync(context.Background(), message)
		if err != nil {
			log.Printf("send %s: %v", order.key, err)
			time.Sleep(pause)
			continue
		}
		order.wasSent(before, now())
		if order.change == none {
			r.settled.Add(1)
		} else {
			time.AfterFunc(time.Duration(order.changeAfter)*time.Millisecond, func() { r.ask(order) })
		}
		return
	}
}

// ask asks for the change until there is an answer that is the last word.
func (r *run) ask(order *order) {
	for wait := pause; !r.isPatienceOver(); wait = min(2*wait, longestPause) {
		request := order.request(now())
		r.awaitUntil(order.movedTo)
		reply, err := r.producer.Request(context.Background(), answerTimeout, request)
		if err != nil {
			// No answer in time, or the request could not be sent. Whether it will be obeyed is not known.
			log.Printf("ask %s: %v", order.key, err)
		} else if order.follow(reply.Body, now()) {
			r.settled.Add(1)
			return
		} else {
			log.Printf("%s was answered %s", order.key, reply.Body)
		}
		time.Sleep(wait)
	}
}

// --- What comes out -------------------------------------------------------------------------------------------------

func (r *run) receive(message *primitive.MessageExt, at int64) {
	order := r.find(message)
	if order == nil {
		return
	}
	if !order.isIntact(message) {
		r.wrong.Add(1)
		log.Printf("wrong: %s %v", message.Body, message.GetProperties())
	}
	order.arrived(at, message.GetProperty("DELAYLINE_ID"))
}

var keyPattern = regexp.MustCompile(`^order-(-?\d+)-(\d+)$`)

// find returns nil for those of other runs, which are told by their keys.
func (r *run) find(message *primitive.MessageExt) *order {
	text := message.GetProperty("number")
	if key := keyPattern.FindStringSubmatch(message.GetKeys()); key != nil {
		if key[1] != strconv.FormatInt(r.seed, 10) {
			return nil
		}
		text = key[2]
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 0 || number >= len(r.orders) {
		return nil
	}
	return r.orders[number]
}

type report struct {
	Sent       int   `json:"sent"`
	Cancelled  int   `json:"cancelled"`
	Moved      int   `json:"moved"`
	TooLate    int   `json:"too_late"`
	Received   int   `json:"received"`
	Repeats    int   `json:"repeats"`
	Twice      int   `json:"twice"`
	Early      int   `json:"early"`
	Missing    int   `json:"missing"`
	Unwanted   int   `json:"unwanted"`
	Wrong      int64 `json:"wrong"`
	OutBefore  int   `json:"out_before"`
	Unanswered int   `json:"unanswered"`
	LateP50    int64 `json:"late_p50_ms"`
	LateP99    int64 `json:"late_p99_ms"`
}

func (r *run) report() string {
	result := report{Wrong: r.wrong.Load()}
	counts := []struct {
		of *int
		is func(*order) bool
	}{
		{&result.Sent, func(o *order) bool { return o.sent }},
		{&result.Cancelled, func(o *order) bool { return o.fate == cancelled }},
		{&result.Moved, func(o *order) bool { return o.fate == moved }},
		{&result.TooLate, func(o *order) bool { return o.fate == tooLate }},
		{&result.Received, func(o *order) bool { return o.arrivedAt != 0 }},
		{&result.Early, (*order).isEarly},
		{&result.Missing, (*order).isMissing},
		{&result.Unwanted, (*order).isUnwanted},
		{&result.OutBefore, (*order).isOutBefore},
		{&result.Unanswered, (*order).isUnanswered},
	}
	var late []int64
	for _, order := range r.orders {
		order.Lock()
		for _, count := range counts {
			if count.is(order) {
				*count.of++
			}
		}
		result.Repeats += order.repeats
		result.Twice += max(0, len(order.ids)-1)
		if order.sent && order.arrivedAt != 0 {
			late = append(late, max(0, order.arrivedAt-order.due))
		}
		if order.isMissing() || order.isUnwanted() || order.isEarly() || order.isOutBefore() || order.isUnanswered() {
			log.Print(order)
		}
		order.Unlock()
	}
	slices.Sort(late)
	if last := len(late) - 1; last >= 0 {
		result.LateP50, result.LateP99 = late[last*50/100], late[last*99/100]
	}
	line, _ := json.Marshal(result)
	return string(line)
}

func now() int64 {
	return time.Now().UnixMilli()
}
