// A worker: claims due tasks, extends claims that take long, and reports the outcome.
//
//	go run ./worker http://127.0.0.1:7700 report.build 30
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"delayline.example/clients/delayline"
)

// build is the work itself, which may be done twice: a worker can die right after it. It stops when the claim is lost.
func build(held context.Context, payload json.RawMessage) error {
	var report struct {
		Name       string
		Impossible bool
		Seconds    int
	}
	if err := json.Unmarshal(payload, &report); err != nil {
		return err
	}
	if report.Impossible {
		return errors.New("such a report cannot be built")
	}
	select {
	case <-held.Done():
		return held.Err()
	case <-time.After(time.Duration(report.Seconds) * time.Second):
		fmt.Println("built", report.Name)
		return nil
	}
}

// keep extends the claim three times in each lease, until held is over; lost ends it when the claim is another worker's, or may be.
func keep(held context.Context, lost context.CancelFunc, server *delayline.Client, claim string, lease time.Duration) {
	// By this worker's own clock, as the server may not answer.
	end := time.AfterFunc(lease, lost)
	defer end.Stop()
	quick := *server
	quick.HTTP.Timeout = lease / 3
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-held.Done():
			return
		case <-tick.C:
			// Of two that are ready either may be chosen.
			if held.Err() != nil {
				return
			}
			sent := time.Now()
			holds, err := quick.End(claim, "extend", map[string]string{"lease": lease.String()})
			switch {
			case err != nil:
				// What fails, or hangs, is tried again by the next.
			case holds:
				end.Reset(time.Until(sent.Add(lease)))
			default:
				lost()
			}
		}
	}
}

func work(server *delayline.Client, claim delayline.Claim, lease time.Duration) {
	isHeld, over := context.WithCancel(context.Background())
	go keep(isHeld, over, server, claim.Claim, lease)
	failure := build(isHeld, claim.Task.Payload)
	held, err := isHeld.Err() == nil, error(nil)
	over()
	switch {
	case !held:
		// What was given up is neither done nor failed.
	case failure != nil:
		held, err = server.End(claim.Claim, "retry", map[string]string{"reason": failure.Error()})
	default:
		held, err = server.End(claim.Claim, "done", nil)
	}
	switch {
	case err != nil:
		// Its lease ends, and another worker does it again.
		log.Println("the end of", claim.Task.ID, "could not be reported:", err)
	case !held:
		fmt.Println("lost the claim of", claim.Task.ID)
	}
}

func main() {
	server, kind := delayline.New(os.Args[1]), os.Args[2]
	seconds, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	lease := time.Duration(seconds) * time.Second
	for {
		claims, err := server.Claim([]string{kind}, 1, "20s", lease.String())
		if err != nil {
			log.Println("the server is away:", err)
			time.Sleep(time.Second)
		}
		for _, claim := range claims {
			work(server, claim, lease)
		}
	}
}
