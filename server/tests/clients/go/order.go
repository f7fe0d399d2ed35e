package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type change string

const (
	none       change = "none"
	cancel     change = "cancel"
	reschedule change = "reschedule"
)

// fate is what the answers say: open as long as there was none, or none was asked for.
type fate string

const (
	open      fate = "open"
	cancelled fate = "cancelled"
	moved     fate = "moved"
	tooLate   fate = "too late"
)

// A change is asked for from right after the send until so long after the due time.
const tooLateMs = 500

// added is what Delayline adds to what comes out.
var added = []string{"DELAYLINE_ID", "DELAYLINE_DUE_AT", "DELAYLINE_ATTEMPT"}

// order is one message, and what became of it.
type order struct {
	options *options
	number  int
	key     string
	// A topic whose target the server knows.
	isRouted    bool
	delay       int64
	change      change
	changeAfter int64
	newDelay    int64

	// Of what follows.
	sync.Mutex
	sent bool
	// Not before earliest, and it is late from due on. They differ where the broker's clock counts.
	earliest, due int64
	// What earliest was before it was moved.
	firstPlanned int64
	movedTo      int64
	fate         fate
	answeredAt   int64
	arrivedAt    int64
	lastArrived  int64
	repeats      int
	ids          map[string]bool
}

func newOrder(options *options, number int, random *rand.Rand) *order {
	delay := func() int64 { return options.shortest + random.Int63n(options.longest-options.shortest+1) }
	o := &order{
		options:  options,
		number:   number,
		key:      fmt.Sprintf("order-%d-%d", options.seed, number),
		isRouted: options.routeInbox != "" && number%10 == 9,
		delay:    delay(),
		change:   []change{none, none, none, none, cancel, reschedule}[random.Intn(6)],
		newDelay: delay(),
		fate:     open,
		ids:      map[string]bool{},
	}
	o.changeAfter = random.Int63n(o.delay + tooLateMs)
	return o
}

func (o *order) message(now int64) *primitive.Message {
	message := o.instruction([]byte(o.body()))
	message.WithTag("t")
	message.WithKeys([]string{o.key})
	message.WithProperty("number", strconv.Itoa(o.number))
	switch o.number % 3 {
	case 0:
		message.WithProperty("DELAYLINE_AFTER", o.after())
	case 1:
		message.WithProperty("DELAYLINE_AT", rfc3339(now+o.delay))
	default:
		message.WithProperty("__STARTDELIVERTIME", strconv.FormatInt(now+o.delay, 10))
	}
	return message
}

// after is the delay in one of the ways in which a duration may be written.
func (o *order) after() string {
	switch o.number / 3 % 3 {
	case 0:
		return strconv.FormatInt(o.delay, 10)
	case 1:
		return fmt.Sprintf("%dms", o.delay)
	}
	text := fmt.Sprintf("%ds%dms", o.delay/1000%60, o.delay%1000)
	if minutes := o.delay / 60_000; minutes > 0 {
		text = fmt.Sprintf("%dm%s", minutes, text)
	}
	return text
}

// request has the same time at each repetition: so one that comes late does no harm.
func (o *order) request(now int64) *primitive.Message {
	o.Lock()
	defer o.Unlock()
	request := o.instruction([]byte(o.change))
	request.WithProperty("DELAYLINE_ACTION", string(o.change))
	if o.change == reschedule {
		if o.movedTo == 0 {
			o.movedTo = now + o.newDelay
		}
		request.WithProperty("DELAYLINE_AT", rfc3339(o.movedTo))
	}
	return request
}

func (o *order) instruction(body []byte) *primitive.Message {
	inbox := o.options.inbox
	if o.isRouted {
		inbox = o.options.routeInbox
	}
	message := primitive.NewMessage(inbox, body)
	message.WithProperty("DELAYLINE_KEY", o.key)
	if !o.isRouted {
		message.WithProperty("DELAYLINE_TOPIC", o.options.target)
	}
	return message
}

func (o *order) body() string {
	return fmt.Sprintf(`{"order":%d}`, o.number)
}

func rfc3339(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

func (o *order) wasSent(before, after int64) {
	o.Lock()
	defer o.Unlock()
	o.sent = true
	o.firstPlanned = before + o.delay
	o.earliest = o.firstPlanned
	if o.number%3 == 0 {
		o.due = after + o.delay
	} else {
		o.due = max(o.earliest, after)
	}
}

// follow tells whether the answer is the last word.
func (o *order) follow(body []byte, at int64) bool {
	var reply struct {
		Answer string
		Task   struct{ State string }
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return false
	}
	o.Lock()
	defer o.Unlock()
	switch reply.Answer {
	case "done":
		o.fate = moved
		if o.change == cancel {
			o.fate = cancelled
		}
	case "too_late", "running":
		// Whether a cancel was, is known when the order has ended: if the server that has it is killed, this request
		// that comes in twice, or an earlier one that was not answered, may be obeyed yet.
		if o.change == cancel {
			return false
		}
		o.fate = tooLate
	case "finished":
		o.fate = tooLate
		// By an earlier request of ours that was not answered.
		if o.change == cancel && reply.Task.State == "cancelled" {
			o.fate = cancelled
		}
	case "cancelled", "not_found":
		// A cancel that has overtaken the order holds; a new time for what is not there does not.
		if o.change != cancel {
			return false
		}
		o.fate = cancelled
	default:
		return false
	}
	o.answeredAt = at
	if o.fate == moved {
		o.earliest, o.due = o.movedTo, o.movedTo
	} else if o.fate == tooLate && o.change == reschedule {
		// It may have gone out at the new time: by a request that was not answered, or that was dealt with twice.
		o.earliest, o.due = min(o.earliest, o.movedTo), max(o.due, o.movedTo)
	}
	return true
}

var digits = regexp.MustCompile(`^\d+$`)

func (o *order) isIntact(message *primitive.MessageExt) bool {
	for name := range message.GetProperties() {
		// What is for Delayline alone.
		if name == "__STARTDELIVERTIME" || strings.HasPrefix(name, "DELAYLINE_") && !slices.Contains(added, name) {
			return false
		}
	}
	return string(message.Body) == o.body() && message.GetTags() == "t" && message.GetKeys() == o.key &&
		message.GetProperty("number") == strconv.Itoa(o.number) &&
		message.GetProperty("DELAYLINE_ID") != "" &&
		digits.MatchString(message.GetProperty("DELAYLINE_DUE_AT")) &&
		digits.MatchString(message.GetProperty("DELAYLINE_ATTEMPT"))
}

func (o *order) arrived(at int64, id string) {
	o.Lock()
	defer o.Unlock()
	if o.arrivedAt == 0 {
		o.arrivedAt = at
	}
	o.lastArrived = at
	if o.ids[id] {
		o.repeats++
	}
	o.ids[id] = true
}

// What follows is for callers that hold the lock.

func (o *order) isUnanswered() bool {
	return o.sent && o.change != none && o.fate == open
}

// isMissing: a cancel that was never answered may have been obeyed.
func (o *order) isMissing() bool {
	isExpected := o.sent && o.fate != cancelled && !(o.change == cancel && o.fate == open)
	return isExpected && o.arrivedAt == 0
}

// isOutBefore: it had come out when it was cancelled or moved, which a server did not know that was killed in between.
func (o *order) isOutBefore() bool {
	isOut := o.arrivedAt >= o.firstPlanned && o.arrivedAt != 0 && o.arrivedAt <= o.answeredAt
	return isOut && (o.fate == cancelled || o.fate == moved && o.arrivedAt < o.movedTo)
}

func (o *order) isUnwanted() bool {
	return o.fate == cancelled && o.arrivedAt != 0 && (!o.isOutBefore() || o.lastArrived > o.answeredAt)
}

func (o *order) isEarly() bool {
	earliest := o.earliest
	if o.fate == open && o.movedTo != 0 {
		earliest = min(earliest, o.movedTo)
	}
	return o.arrivedAt != 0 && o.arrivedAt < earliest && !o.isOutBefore()
}

func (o *order) String() string {
	return fmt.Sprintf("%s: sent %v, %s %s, due at %d, came at %d as %v", o.key, o.sent, o.change, o.fate, o.due,
		o.arrivedAt, o.ids)
}
