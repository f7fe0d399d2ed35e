// Package delayline is a client of Delayline's HTTP interface, of the standard library alone: copy it into your service.
package delayline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Task is a task as the server shows it.
type Task struct {
	ID      string          `json:"id"`
	Kind    string          `json:"kind"`
	Key     string          `json:"key"`
	State   string          `json:"state"`
	DueAt   time.Time       `json:"due_at"`
	Attempt int             `json:"attempt"`
	Version uint64          `json:"version"`
	Payload json.RawMessage `json:"payload"`
}

// Answer is what a verb answered, in a word, and the task as it is now.
type Answer struct {
	Answer string `json:"answer"`
	Task   *Task  `json:"task"`
}

// Claim is a task that is this worker's until its lease ends.
type Claim struct {
	Claim string `json:"claim"`
	Task  Task   `json:"task"`
}

// Refused says why the server refused a request; nothing was done.
type Refused struct {
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
}

func (r *Refused) Error() string { return r.Detail }

// Client speaks to one server. A request that fails otherwise than by *Refused may have been carried out or not. To cancel and to
// end a claim may be repeated, and so may to schedule with a name. Before another request is repeated, look with Find.
type Client struct {
	URL   string
	Token string
	// Longer than a claim may wait.
	HTTP http.Client
}

// New makes a client of the server at an address such as http://127.0.0.1:7700.
func New(address string) *Client {
	return &Client{URL: strings.TrimRight(address, "/"), HTTP: http.Client{Timeout: 90 * time.Second}}
}

// Schedule answers new, existing, replaced or running; after is a span such as 15m. A name of the caller's choice for the request,
// if it is not empty, is sent as Idempotency-Key.
func (c *Client) Schedule(kind, key, after string, payload any, name string) (answer Answer, err error) {
	body := map[string]any{"after": after, "payload": payload}
	err = c.request(http.MethodPut, task(kind, key), body, name, &answer)
	return answer, err
}

// Cancel answers done: the task never runs. Else too_late, finished or not_found.
func (c *Client) Cancel(kind, key string) (Answer, error) {
	return c.answer(http.MethodPost, task(kind, key)+"/cancel", struct{}{})
}

// Find gives the task of a kind and key, or nil.
func (c *Client) Find(kind, key string) (*Task, error) {
	var found Task
	err := c.request(http.MethodGet, task(kind, key), nil, "", &found)
	var refused *Refused
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return nil, nil
	}
	return &found, err
}

// Shift moves a task by a span such as +10m.
func (c *Client) Shift(kind, key, by string) (Answer, error) {
	return c.answer(http.MethodPost, task(kind, key)+"/shift", map[string]string{"by": by})
}

// Claim gives tasks that are due, and waits for one as long as wait.
func (c *Client) Claim(kinds []string, max int, wait, lease string) ([]Claim, error) {
	var given struct{ Claims []Claim }
	body := map[string]any{"kinds": kinds, "max": max, "wait": wait, "lease": lease}
	err := c.request(http.MethodPost, "/v1/claims", body, "", &given)
	return given.Claims, err
}

// End ends a claim by done, retry, snooze or discard, or extends it; false if it held no more.
func (c *Client) End(claim, how string, more map[string]string) (bool, error) {
	if more == nil {
		more = map[string]string{}
	}
	answer, err := c.answer(http.MethodPost, "/v1/claims/"+claim+"/"+how, more)
	return answer.Answer == "done", err
}

func task(kind, key string) string {
	return "/v1/tasks/" + url.PathEscape(kind) + "/" + url.PathEscape(key)
}

func (c *Client) answer(method, path string, body any) (answer Answer, err error) {
	err = c.request(method, path, body, "", &answer)
	return answer, err
}

func (c *Client) request(method, path string, body any, name string, into any) error {
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, c.URL+path, &sent)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if name != "" {
		request.Header.Set("Idempotency-Key", name)
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var came bytes.Buffer
	if _, err := came.ReadFrom(response.Body); err != nil {
		return err
	}
	// What a verb answers is no mistake of the caller's.
	var answered struct{ Answer string }
	if json.Unmarshal(came.Bytes(), &answered); response.StatusCode < 300 || answered.Answer != "" {
		return json.Unmarshal(came.Bytes(), into)
	}
	if response.StatusCode >= 500 {
		return fmt.Errorf("whether it was carried out is not known: %s", response.Status)
	}
	// A proxy refuses in words of its own.
	refused := &Refused{Detail: response.Status}
	_ = json.Unmarshal(came.Bytes(), refused)
	refused.Status = response.StatusCode
	return refused
}
