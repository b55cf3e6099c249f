package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

const (
	kindTidegate = "tidegate"
	kindNats     = "nats-server"
)

// settings are the stand-in's own.
type settings struct {
	program string
	kind    string
	dir     string
	keep    bool
}

// Snippets that add a listener get a port of the same name.
var listeners = []string{"websocket", "mqtt", "leafnode"}

// values are the names that the texts of tests may use between double braces.
type values struct {
	ServerName, ShortID, InstanceID string
	ServerIndex                     int
	ServerDir, StoreDir             string
	Host, AdvertiseHost             string
	ClientPort                      int
	JetStream                       bool
	ClusterName                     string
	ClusterIndex, ClusterSize       int
	ClusterPort                     int
	Routes                          []string
	Clusters                        []string
	GatewayPort                     int
	Gateways                        map[string][]string
	Ports                           map[string]int
	Snippets                        map[string]string
	TLSInclude                      string
	TLS                             *tlsPaths
}

// The service whose place the stand-in takes declares accounts for its users by default. The stand-in declares none: by
// default clients are in the global account, without credentials, on either server.
const plainSettings = `
{{- with .Snippets.top }}include "{{ . }}"{{ end }}
server_name: "{{ .ServerName }}"
host: "{{ .Host }}"
port: {{ .ClientPort }}
client_advertise: "{{ .AdvertiseHost }}:{{ .ClientPort }}"
{{ if .JetStream -}}
jetstream {
  enabled: true
  store_dir: "{{ .StoreDir }}"
  {{ with .Snippets.jetstream }}include "{{ . }}"{{ end }}
}
{{ end -}}
{{ if .Routes -}}
cluster {
  name: "{{ .ClusterName }}"
  listen: "127.0.0.1:{{ .ClusterPort }}"
  routes: [
    {{ range .Routes }}"nats://{{ . }}"
    {{ end }}
  ]
}
{{ end -}}
{{ if .GatewayPort -}}
gateway {
  name: "{{ .ClusterName }}"
  listen: "127.0.0.1:{{ .GatewayPort }}"
  gateways: [
    {{ range $name, $urls := .Gateways }}{ name: "{{ $name }}", urls: [
      {{ range $urls }}"nats://{{ . }}"
      {{ end }}
    ] }
    {{ end }}
  ]
}
{{ end -}}
{{ with .TLSInclude }}include "{{ . }}"{{ end }}
{{ with .Snippets.tls }}include "{{ . }}"{{ end }}
{{ with .Snippets.websocket }}include "{{ . }}"{{ end }}
{{ with .Snippets.mqtt }}include "{{ . }}"{{ end }}
{{ with .Snippets.leafnode }}include "{{ . }}"{{ end }}
{{ with .Snippets.system_account }}include "{{ . }}"{{ end }}
{{ with .Snippets.authorization }}include "{{ . }}"{{ end }}
{{ with .Snippets.accounts }}include "{{ . }}"{{ end }}
`

// write renders the snippets and the settings of one server into dir, and returns the path of the settings.
func (v values) write(dir string, snippets map[string]string, main string, tls *tlsSettings) (string, error) {
	if tls != nil {
		if err := os.WriteFile(filepath.Join(dir, "generated-tls.conf"), []byte(tls.block()), 0o600); err != nil {
			return "", err
		}
		v.TLSInclude, v.TLS = "generated-tls.conf", &tls.paths
	}
	v.Snippets = map[string]string{}
	for name, body := range snippets {
		if err := v.render(filepath.Join(dir, name+".conf"), body); err != nil {
			return "", fmt.Errorf("snippet %s: %w", name, err)
		}
		v.Snippets[name] = name + ".conf"
	}
	if main == "" {
		main = plainSettings
	}
	path := filepath.Join(dir, "server.conf")
	return path, v.render(path, main)
}

func (v values) render(path, body string) error {
	parsed, err := template.New(filepath.Base(path)).Parse(body)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, v); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}
