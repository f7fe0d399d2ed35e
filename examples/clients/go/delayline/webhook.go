package delayline

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const tolerance = 5 * time.Minute

// IsGenuine says whether a webhook was sent by who has the secret, and not long ago.
func IsGenuine(secret string, header http.Header, body []byte) bool {
	name, sent := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	digest := hmac.New(sha256.New, key)
	fmt.Fprintf(digest, "%s.%s.", name, sent)
	digest.Write(body)
	expected := []byte("v1," + base64.StdEncoding.EncodeToString(digest.Sum(nil)))
	isSigned := false
	// One for each secret, while one is replaced by another.
	for _, signature := range strings.Split(header.Get("Webhook-Signature"), " ") {
		isSigned = hmac.Equal(expected, []byte(signature)) || isSigned
	}
	return isSigned
}
