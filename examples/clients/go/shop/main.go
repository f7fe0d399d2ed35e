// A shop that cancels unpaid orders, and changes its mind about some.
//
//	go run ./shop http://127.0.0.1:7700
package main

import (
	"errors"
	"fmt"
	"log"
	"os"

	"delayline.example/clients/delayline"
)

func main() {
	server := delayline.New(os.Args[1])
	order := map[string]int{"order": 1}
	first := must(server.Schedule("order.cancel", "order/1", "15m", order, "order/1 is placed"))
	fmt.Println(first.Answer, first.Task.State)
	// The same request, as if its answer had been lost; and another one.
	fmt.Println(must(server.Schedule("order.cancel", "order/1", "15m", order, "order/1 is placed")).Answer)
	fmt.Println(must(server.Schedule("order.cancel", "order/1", "15m", order, "order/1 is placed anew")).Answer)
	moved := must(server.Shift("order.cancel", "order/1", "+10m"))
	fmt.Println(moved.Answer, moved.Task.DueAt.Sub(first.Task.DueAt))
	fmt.Println(must(server.Cancel("order.cancel", "order/1")).Answer)
	again := must(server.Cancel("order.cancel", "order/1"))
	fmt.Println(again.Answer, again.Task.State)
	fmt.Println(must(server.Cancel("order.cancel", "order/2")).Answer)
	_, err := server.Schedule("order.cancel", "order/3", "soon", nil, "")
	var refused *delayline.Refused
	if errors.As(err, &refused) {
		fmt.Println("refused:", refused.Status)
	}
}

func must(answer delayline.Answer, err error) delayline.Answer {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}
