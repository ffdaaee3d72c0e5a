package pop

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edge/internal/prose"
	"github.com/edgelimit/edge/operate"
	"github.com/edgelimit/edge/pop/setting"
)

// A pair is the files of a certificate and its key, and the settings that name them.
type pair struct{ certSetting, cert, keySetting, key string }

// listed returns a pair that tls-certs names.
func listed(cert, key string) pair { return pair{"tls-certs", cert, "tls-certs", key} }

// pairs returns the files of all certificates.
func (o *Options) pairs() (all []pair, err error) {
	if o.TLSCert != "" {
		all = append(all, pair{"tls-cert", o.TLSCert, "tls-key", o.TLSKey})
	}
	for _, text := range o.TLSCerts {
		if cert, key, ok := strings.Cut(text, ":"); ok {
			all = append(all, listed(cert, key))
		} else if all, err = appendPairs(all, text); err != nil {
			return nil, setting.FileError("tls-certs", err)
		}
	}
	return all, nil
}

// appendPairs appends the pairs in a directory: NAME.crt or NAME.pem with NAME.key, as lego writes them, and
// NAME/fullchain.pem with NAME/privkey.pem, as certbot does. It ignores files without a key, such as those of issuers.
func appendPairs(all []pair, dir string) ([]pair, error) {
	entries, err := os.ReadDir(dir)
	before := len(all)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		stem, isKey := strings.CutSuffix(path, ".key")
		switch {
		case e.Name()[0] == '.': // versions of mounted secrets
		case isKey && exists(stem+".crt"):
			all = append(all, listed(stem+".crt", path))
		case isKey:
			all = append(all, listed(stem+".pem", path))
		case exists(path + "/privkey.pem"):
			all = append(all, listed(path+"/fullchain.pem", path+"/privkey.pem"))
		}
	}
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		err = fmt.Errorf("%s must be a directory, or two files CERT:KEY", dir)
	case err == nil && len(all) == before:
		err = fmt.Errorf("%s has no certificates: it must have NAME.crt or NAME.pem with NAME.key, or NAME/fullchain.pem with NAME/privkey.pem", dir)
	}
	return all, err
}

// exists reports whether a file exists, or may exist in a directory that the node cannot read.
func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// A certificate is served by the listener with TLS.
type certificate struct {
	tls.Certificate
	names []string // at least one
	shown operate.Certificate
	isNew bool // since the previous reload
}

// load reads a certificate and its key.
func (p pair) load() (*certificate, error) {
	c := new(certificate)
	chain, err := os.ReadFile(p.cert)
	if err != nil {
		return nil, setting.FileError(p.certSetting, err)
	}
	wrong := p.keySetting // unless an error is about the certificate
	key, err := setting.ReadSecret(p.key)
	if err == nil {
		c.Certificate, err = tls.X509KeyPair(chain, []byte(key))
		switch text := fmt.Sprint(err); {
		case err == nil:
		case !strings.Contains(text, "key") || strings.Contains(text, "certificate input"):
			wrong = p.certSetting
			err = fmt.Errorf("%s with %s: %s", p.cert, p.key, strings.TrimPrefix(text, "tls: "))
		case strings.Contains(key, "ENCRYPTED"):
			err = fmt.Errorf("%s has a passphrase, which a node cannot ask for; to remove it: openssl pkey -in %[1]s -out NEW", p.key)
		case strings.Contains(text, "not match"):
			err = fmt.Errorf("%s is not the key of the first certificate in %s; intermediate certificates come after that", p.key, p.cert)
		default:
			err = fmt.Errorf("%s with %s: %s", p.key, p.cert, strings.TrimPrefix(text, "tls: "))
		}
	}
	if err != nil {
		return nil, setting.FileError(wrong, err)
	}
	c.shown = operate.Certificate{Serial: fmt.Sprintf("%X", c.Leaf.SerialNumber.Bytes()), NotBefore: c.Leaf.NotBefore, NotAfter: c.Leaf.NotAfter, File: p.cert}
	c.names = c.Leaf.DNSNames
	for _, ip := range c.Leaf.IPAddresses {
		c.names = append(c.names, ip.String())
	}
	if c.names == nil {
		c.names = []string{strings.ToValidUTF8(cmp.Or(c.Leaf.Subject.CommonName, p.cert), "\uFFFD")} // as metrics require
	}
	return c, nil
}

// lacksIssuer reports whether the certificate of the issuer is missing in the file. A self-signed certificate needs none.
func (c *certificate) lacksIssuer() bool {
	return !bytes.Equal(c.Leaf.RawIssuer, c.Leaf.RawSubject) && !slices.ContainsFunc(c.Certificate.Certificate[1:], func(der []byte) bool {
		issuer, err := x509.ParseCertificate(der)
		return err == nil && bytes.Equal(issuer.RawSubject, c.Leaf.RawIssuer)
	})
}

// certificates holds all certificates of the listener with TLS. It is immutable.
type certificates struct {
	first  *certificate
	byName map[string]*certificate // in lower case; *.example.com is .example.com
	seen   map[string]bool         // signatures of all certificates
	shown  []operate.Certificate   // those in use, in the order in which they expire, with different names
}

// find returns the certificate of a name, or of a wildcard that covers it, or the first one.
func (c *certificates) find(name string) *tls.Certificate {
	name = strings.ToLower(name)
	dot := max(0, strings.IndexByte(name, '.'))
	return &cmp.Or(c.byName[name], c.byName[name[dot:]], c.first).Certificate
}

// wild returns the key of a name in byName.
func wild(name string) string { return strings.ToLower(strings.TrimPrefix(name, "*")) }

// loadCertificates loads all certificates or, if one has an error, none. It logs those that are new.
func (f *files) loadCertificates() error {
	pairs, err := f.o.pairs()
	errs := []error{err}
	var all []*certificate
	for _, p := range pairs {
		c, err := p.load()
		all, errs = append(all, c), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil || all == nil {
		return err
	}
	next := &certificates{byName: map[string]*certificate{}, seen: map[string]bool{}}
	for _, c := range all {
		signature := string(c.Leaf.Signature)
		c.isNew, next.seen[signature] = !f.certificates.Load().seen[signature], true
		var rival *certificate
		for _, name := range c.names {
			other := next.byName[wild(name)]
			if other == nil || other.Leaf.NotAfter.Before(c.Leaf.NotAfter) {
				next.byName[wild(name)] = c
			}
			rival = cmp.Or(rival, other)
		}
		if rival != nil && rival != c && (c.isNew || rival.isNew) {
			f.o.Logger.Warn("two certificates have names in common; the one that expires last is used for them; remove the other, unless it has more names",
				"files", []string{rival.shown.File, c.shown.File})
		}
		if c.isNew && c.lacksIssuer() {
			f.o.Logger.Warn("the certificate of the issuer is not in the file; append it, or give the full chain, unless all clients have it",
				"issuer", c.Leaf.Issuer, "file", c.shown.File)
		}
	}
	next.first = next.byName[wild(all[0].names[0])]
	for _, c := range all {
		used := slices.IndexFunc(c.names, func(name string) bool { return next.byName[wild(name)] == c })
		if used < 0 {
			continue
		}
		s := &c.shown
		s.Name = c.names[used]
		next.shown = append(next.shown, *s)
		if c.isNew {
			f.o.Logger.Info("certificate loaded", "name", s.Name, "serial", s.Serial, "not_after", s.NotAfter, "file", s.File)
		}
	}
	slices.SortStableFunc(next.shown, func(a, b operate.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	f.certificates.Store(next)
	return nil
}

// noteCertificates records whether certificates are not valid.
func (n *Node) noteCertificates() {
	var invalid []string
	for _, s := range n.files.certificates.Load().shown {
		if now := n.o.Now(); now.After(s.NotAfter) || now.Before(s.NotBefore) {
			invalid = append(invalid, fmt.Sprintf("%s (%s, valid from %s until %s)", s.Name, s.File, s.NotBefore.Format(time.RFC3339), s.NotAfter.Format(time.RFC3339)))
		}
	}
	problem := ""
	if invalid != nil {
		problem = fmt.Sprintf("clients refuse the certificate of %s: renew it, or correct the clock", prose.Enumerate(invalid, "and"))
	}
	n.notices.note(problemCertificate, problem)
}

// tls returns the configuration of a listener with TLS. For another protocol, replace NextProtos.
func (f *files) tls() *tls.Config {
	return &tls.Config{
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return f.certificates.Load().find(h.ServerName), nil
		},
	}
}

// collect sends the metrics of the certificates.
func (f *files) collect(to chan<- prometheus.Metric) {
	desc := prometheus.NewDesc("edge_tls_certificate_not_after_seconds",
		"Unix time at which the certificate expires, by the first name that it is used for.", []string{"name"}, nil)
	for _, s := range f.certificates.Load().shown {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(s.NotAfter.Unix()), s.Name)
	}
}
