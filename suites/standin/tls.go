package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const defaultTLSTimeout = 2.0

type tlsPaths struct{ CAFile, CertFile, KeyFile string }

// tlsSettings are one instance's certificates, and the settings that refer to them.
type tlsSettings struct {
	request  tlsRequest
	paths    tlsPaths
	material tlsMaterial
}

func newTLS(request tlsRequest, dir string) (*tlsSettings, error) {
	if request.Timeout == 0 {
		request.Timeout = defaultTLSTimeout
	}
	if len(request.SANs) == 0 {
		request.SANs = []string{"localhost", "127.0.0.1", "::1"}
	}
	authority, err := newCertificate("authority", nil, nil, 0)
	if err != nil {
		return nil, err
	}
	server, err := newCertificate("server", authority, request.SANs, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	made := &tlsSettings{request: request, material: tlsMaterial{CA: string(authority.certificatePEM)}}
	if request.mutual() {
		client, err := newCertificate("client", authority, nil, x509.ExtKeyUsageClientAuth)
		if err != nil {
			return nil, err
		}
		made.material.ClientCert, made.material.ClientKey = string(client.certificatePEM), string(client.keyPEM)
	}
	for _, file := range []struct {
		path *string
		name string
		text []byte
	}{
		{&made.paths.CAFile, "ca.pem", authority.certificatePEM},
		{&made.paths.CertFile, "server-cert.pem", server.certificatePEM},
		{&made.paths.KeyFile, "server-key.pem", server.keyPEM},
	} {
		*file.path = filepath.Join(dir, file.name)
		if err := os.WriteFile(*file.path, file.text, 0o600); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// block returns the `tls` block of a server's settings.
func (t *tlsSettings) block() string {
	text := fmt.Sprintf("tls {\n  cert_file: %q\n  key_file: %q\n  timeout: %f\n",
		t.paths.CertFile, t.paths.KeyFile, t.request.Timeout)
	if t.request.mutual() {
		text += fmt.Sprintf("  ca_file: %q\n  verify: true\n", t.paths.CAFile)
	}
	if t.request.HandshakeFirst {
		text += "  handshake_first: true\n"
	}
	return text + "}\n"
}

type certificate struct {
	parsed                 *x509.Certificate
	key                    *ecdsa.PrivateKey
	certificatePEM, keyPEM []byte
}

// newCertificate returns a certificate that `authority` has signed, or a new authority without one.
func newCertificate(name string, authority *certificate, sans []string, usage x509.ExtKeyUsage) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return nil, err
	}
	wanted := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "suites " + name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(48 * time.Hour),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
	}
	for _, san := range sans {
		if address := net.ParseIP(san); address != nil {
			wanted.IPAddresses = append(wanted.IPAddresses, address)
		} else {
			wanted.DNSNames = append(wanted.DNSNames, san)
		}
	}
	parent, signer := wanted, key
	if authority == nil {
		wanted.IsCA = true
		wanted.KeyUsage |= x509.KeyUsageCertSign
	} else {
		wanted.ExtKeyUsage = []x509.ExtKeyUsage{usage}
		parent, signer = authority.parsed, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, wanted, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &certificate{
		parsed:         parsed,
		key:            key,
		certificatePEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}
