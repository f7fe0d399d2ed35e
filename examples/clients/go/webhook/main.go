// A receiver of webhooks: due tasks are posted to it, and it handles only signed ones, each once.
//
//	HOOK_SECRET=whsec_… go run ./webhook 8000
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"delayline.example/clients/delayline"
)

// remind is the work itself.
func remind(body []byte) error {
	var task struct{ Invoice string }
	if err := json.Unmarshal(body, &task); err != nil {
		return err
	}
	if task.Invoice == "" {
		return errors.New("no invoice")
	}
	fmt.Println("reminded of", task.Invoice)
	return nil
}

type receiver struct {
	secret string
	turn   sync.Mutex
	// A service has them in its database, written in one transaction with what it does.
	done map[string]bool
}

func (r *receiver) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	// The largest payload by default.
	body, err := io.ReadAll(http.MaxBytesReader(answer, request.Body, 1<<20))
	if err != nil {
		http.Error(answer, "no body", http.StatusBadRequest)
		return
	}
	if !delayline.IsGenuine(r.secret, request.Header, body) {
		http.Error(answer, "not signed", http.StatusUnauthorized)
		return
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	// The same for every attempt: an answer can be lost.
	name := request.Header.Get("Webhook-Id")
	if r.done[name] {
		return
	}
	if err := remind(body); err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	r.done[name] = true
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("receiving at http://%s/\n", listener.Addr())
	log.Fatal(http.Serve(listener, &receiver{secret: os.Getenv("HOOK_SECRET"), done: map[string]bool{}}))
}
