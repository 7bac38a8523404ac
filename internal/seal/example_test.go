package seal_test

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/surehook/surehook/internal/seal"
)

// An operator rotates the master key: the new one first, the old one beside it
// until every value is sealed again.
func ExampleKeyring_Reseal() {
	older, newer := make([]byte, 32), make([]byte, 32)
	newer[0] = 1
	before, _ := seal.NewKeyring(rand.Reader, older)
	value, _ := before.Seal("webhook_endpoints", "secret_enc", "whk_1", []byte("secret"))

	both, _ := seal.NewKeyring(rand.Reader, newer, older)
	fresh, changed, _ := both.Reseal("webhook_endpoints", "secret_enc", "whk_1", value)

	after, _ := seal.NewKeyring(rand.Reader, newer)
	plain, _ := after.Open("webhook_endpoints", "secret_enc", "whk_1", fresh)
	_, err := after.Open("webhook_endpoints", "secret_enc", "whk_2", fresh)
	fmt.Println(changed, string(plain), errors.Is(err, seal.ErrTampered))
	// Output: true secret true
}
