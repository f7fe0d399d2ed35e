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

// keep extends the claim three times in each lease, until held is over; lost ends it when the claim is another worker's.
func keep(held context.Context, lost context.CancelFunc, server *delayline.Client, claim string, lease time.Duration) {
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-held.Done():
			return
		case <-tick.C:
			// What fails is tried again by the next.
			if holds, err := server.End(claim, "extend", map[string]string{"lease": lease.String()}); err == nil && !holds {
				lost()
			}
		}
	}
}

func work(server *delayline.Client, claim delayline.Claim, lease time.Duration) {
	isHeld, over := context.WithCancel(context.Background())
	go keep(isHeld, over, server, claim.Claim, lease)
	failure := build(isHeld, claim.Task.Payload)
	over()
	held, err := true, error(nil)
	if failure != nil {
		held, err = server.End(claim.Claim, "retry", map[string]string{"reason": failure.Error()})
	} else {
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
