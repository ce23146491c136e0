// A quote from Spillway for Go 1.21 or later, without a module. Environment: SPILLWAY_URL, SPILLWAY_TOKEN_FILE, and
// SPILLWAY_SPOOL, a file such as /run/spillway/spool/web.jsonl. nil: the shop's last resort is to be used.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// The request is wrong (an address, a code): ask the customer, charge nothing.
var ErrRejected = errors.New("rejected")

type Answer struct {
	Decision, Tax, Error, Reason string
	QuoteID                      string          `json:"quote_id"`
	ProviderError                json.RawMessage `json:"provider_error"`
	Fallback                     *struct{ Handback json.RawMessage }
}

var client = http.Client{Timeout: 2500 * time.Millisecond}

func spool(line []byte) {
	if file, err := os.OpenFile(os.Getenv("SPILLWAY_SPOOL"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o660); err == nil {
		defer file.Close()
		file.Write(append(line, '\n'))
	}
}

func exchange(request []byte) (answer Answer, status int, err error) {
	token, _ := os.ReadFile(os.Getenv("SPILLWAY_TOKEN_FILE"))
	post, err := http.NewRequest("POST", os.Getenv("SPILLWAY_URL")+"/spillway/v1/quote", bytes.NewReader(request))
	if err != nil {
		return
	}
	post.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	reply, err := client.Do(post)
	if err != nil {
		return
	}
	defer reply.Body.Close()
	err = json.NewDecoder(reply.Body).Decode(&answer)
	return answer, reply.StatusCode, err
}

// caller:
func Quote(request []byte) (*Answer, error) {
	answer, status, err := exchange(request)
	if status == 422 {
		return nil, fmt.Errorf("%w: %s", ErrRejected, answer.ProviderError)
	}
	if status == 200 && err == nil {
		if answer.Fallback != nil && answer.Fallback.Handback != nil {
			spool(answer.Fallback.Handback) // no ledger had room for the flag: it is ours to keep
		}
		return &answer, nil
	}
	line, _ := json.Marshal(map[string]any{"unquoted": json.RawMessage(request), "at": time.Now(), "why": fmt.Sprint(status, err)})
	spool(line)
	return nil, nil
} // :caller

// A request a line.
func main() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answer, err := Quote(in.Bytes())
		text, _ := json.Marshal(answer)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Println(string(text))
	}
}
