package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestParseKeyForms(t *testing.T) {
	want := key(0xfb)
	std, raw := base64.StdEncoding.EncodeToString(want), base64.RawStdEncoding.EncodeToString(want)
	for name, in := range map[string]string{"base64": std, "unpadded": raw, "hex": hex.EncodeToString(want), "HEX": strings.ToUpper(hex.EncodeToString(want))} {
		if got, err := ParseKey(in); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, in := range map[string]string{
		"empty": "", "a password": "correct horse battery staple", "31 bytes": base64.StdEncoding.EncodeToString(want[:31]),
		"33 bytes": base64.StdEncoding.EncodeToString(append(want, 1)), "URL-safe": base64.URLEncoding.EncodeToString(want),
		"line break": std[:10] + "\n" + std[11:], "space": " " + std[1:], "not hex": strings.Repeat("z", 64), "stray bits": raw[:42] + "/",
		"text of 43 characters": strings.Repeat("!", 43),
	} {
		key, err := ParseKey(in)
		if err == nil || key != nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if len(in) > 8 && strings.Contains(err.Error(), in[:8]) {
			t.Errorf("%s: the error repeats the key: %v", name, err)
		}
	}
}

func TestParseKeysOfOneFile(t *testing.T) {
	one, two := base64.StdEncoding.EncodeToString(key(1)), hex.EncodeToString(key(2))
	keys, err := ParseKeys("# current\r\n" + one + "\r\n\n# until all is resealed\n  " + two + "  ")
	if err != nil || len(keys) != 2 || !bytes.Equal(keys[0], key(1)) || !bytes.Equal(keys[1], key(2)) {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	if _, err := ParseKeys("\n# none\n"); err == nil {
		t.Error("no key, yet no error")
	}
	if _, err := ParseKeys(one + "\nnonsense"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
	if _, err := ParseKeys(strings.Repeat("x", 1<<20)); err == nil {
		t.Error("an endless line")
	}
}

func TestReadKeysRefusesFilesThatOthersCanRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	text := []byte(hex.EncodeToString(key(1)) + "\n")
	for mode, ok := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o620: false, 0o644: false, 0o777: false} {
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		keys, err := ReadKeys(path)
		if (err == nil) != ok || ok && !bytes.Equal(keys[0], key(1)) {
			t.Errorf("mode %04o: %v", mode, err)
		}
		if err != nil && !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("doesn't say what to do: %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadKeysRefusesWhatIsNoKeyFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(dir); err == nil {
		t.Error("a directory")
	}
	if _, err := ReadKeys(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for name, text := range map[string]string{"words": "my secret pass phrase", "large": strings.Repeat("#\n", maxKeyFile), "empty": ""} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKeys(path); err == nil || strings.Contains(err.Error(), "pass phrase") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCreateKeyNeverReplacesAFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "master.key")
	made, err := CreateKey(path, source())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if _, err := CreateKey(path, bytes.NewReader(key(9))); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second key: %v", err)
	}
	keys, created, err := LoadOrCreate(path, bytes.NewReader(nil))
	if err != nil || created || len(keys) != 1 || !bytes.Equal(keys[0], made) {
		t.Errorf("created %v, %v", created, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

func TestCreateKeyFailsWhole(t *testing.T) {
	dir := t.TempDir()
	if _, err := CreateKey(filepath.Join(dir, "k"), bytes.NewReader(key(1)[:8])); err == nil {
		t.Error("half a key")
	}
	if _, _, err := LoadOrCreate(filepath.Join(dir, "none", "k"), source()); err == nil {
		t.Error("no directory")
	}
	if _, err := os.Stat(filepath.Join(dir, "k")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a file was left")
	}
}

func TestPublishWhereThereAreNoLinks(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	unsupported := func(string, string) error { return errors.ErrUnsupported }
	if err := os.WriteFile(from, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publish(unsupported, from, to); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(from, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publish(unsupported, from, to); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "1" {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestTwoProcessesThatStartAtOnceShareAKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	keys := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			got, _, err := LoadOrCreate(path, bytes.NewReader(key(byte(i))))
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = got[0]
		})
	}
	wg.Wait()
	for _, k := range keys[1:] {
		if !bytes.Equal(k, keys[0]) {
			t.Fatal("two keys")
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add(hex.EncodeToString(key(1)) + "\n" + base64.StdEncoding.EncodeToString(key(2)))
	f.Add("# x\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		keys, err := ParseKeys(s)
		if (err == nil) != (len(keys) > 0) {
			t.Fatal("neither keys nor an error")
		}
		for _, k := range keys {
			if len(k) != keySize {
				t.Fatalf("a key of %d bytes", len(k))
			}
		}
	})
}
