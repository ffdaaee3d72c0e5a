package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Certify creates cert.pem and key.pem in dir, and both.pem for HAProxy.
func Certify(dir string) (cert, private string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Check(err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	Check(err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	cert, private = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	Check(os.WriteFile(cert, certPEM, 0o600))
	Check(os.WriteFile(private, keyPEM, 0o600))
	Check(os.WriteFile(filepath.Join(dir, "both.pem"), append(certPEM, keyPEM...), 0o600))
	return cert, private
}
