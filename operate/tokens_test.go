package operate_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edge/operate"
)

func TestTokensFile(t *testing.T) {
	long := strings.Repeat("x", 16)
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		want       string // in the error; empty: none
	}{
		{"two", "# who may change things\n\nanna " + long + "\n  ben\t" + long + "y\n", 0o640, ""},
		{"readable by all", "anna " + long, 0o644, "chmod g-wx,o= "},
		{"no token", "# nobody\n", 0o600, "has no token: a line must be NAME TOKEN"},
		{"no name", "anna " + long + "\n" + long, 0o600, ":2: a line must be NAME TOKEN"},
		{"too much", "anna " + long + " # comment", 0o600, ":1: a line must be NAME TOKEN"},
		{"short", "anna " + long[1:], 0o600, ":1: a token must have at least 16 characters"},
		{"same name", "anna " + long + "\nanna " + long + "y", 0o600, ":2: the name or token is already used by anna"},
		{"same token", "anna " + long + "\nben " + long, 0o600, ":2: the name or token is already used by anna"},
		{"reserved name", "local " + long, 0o600, ":1: the name local is reserved for tokens that nodes generate"},
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(file, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		switch err := new(operate.Tokens).Read(file); {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file)):
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.want)
		}
	}
	if err := new(operate.Tokens).Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error for a missing file")
	}
}

// The token of a node is found by its user on this machine, at each address that leads to the
// listener, and at no other.
func TestLocalToken(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", filepath.Join(t.TempDir(), "edge")+":/else")
	tokens := new(operate.Tokens)
	for _, listener := range []string{"127.0.0.1:99001", "[::]:99002"} {
		remove, err := tokens.WriteLocal(listener)
		if err != nil {
			t.Fatal(err)
		}
		defer remove()
	}
	for addr, want := range map[string]bool{
		"127.0.0.1:99001": true, "localhost:99001": true, "127.0.0.1:99002": true, "[::1]:99002": true,
		"127.0.0.2:99001": false, "192.0.2.1:99002": false, "edge.example:99002": false, "127.0.0.1:99003": false, "127.0.0.1": false, "../127.0.0.1:99001": false,
	} {
		if got := operate.LocalToken(addr); (got != "") != want {
			t.Errorf("LocalToken(%q) = %q, want one: %t", addr, got, want)
		}
	}
	files, _ := filepath.Glob(filepath.Join(os.Getenv("RUNTIME_DIRECTORY")[:strings.Index(os.Getenv("RUNTIME_DIRECTORY"), ":")], "*"))
	if len(files) != 2 {
		t.Fatalf("files %q, want 2", files)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want a file that only its user can read", file, info.Mode(), err)
		}
	}
	f := newFixture(t, func(o *operate.Options) { o.Tokens = tokens })
	r := httptest.NewRequest("POST", "/api/v1/mitigations/lift?key="+f.key, nil)
	r.Host = "127.0.0.1"
	r.Header.Set("Authorization", "Bearer "+operate.LocalToken("127.0.0.1:99002"))
	w := httptest.NewRecorder()
	if f.ServeHTTP(w, r); w.Code != 200 || !strings.Contains(f.log.String(), "by=local") {
		t.Errorf("with the token: %d %s, log %s", w.Code, w.Body, &f.log)
	}
	if operate.RemoveLocal("[::]:99002"); operate.LocalToken("127.0.0.1:99002") != "" {
		t.Error("a token still exists after it was removed")
	}
	// Commands never send the content of another file of that name, such as a link to a secret.
	if err := os.WriteFile(files[0], []byte("a secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := operate.LocalToken("127.0.0.1:99001"); got != "" {
		t.Errorf("LocalToken = %q, which is not a token", got)
	}
}
