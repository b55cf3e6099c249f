package main

// The requests and answers of the test service, as far as tests use them.

type tlsRequest struct {
	Mode           string   `json:"mode"`
	SANs           []string `json:"sans"`
	HandshakeFirst bool     `json:"handshake_first"`
	Timeout        float64  `json:"timeout"`
}

func (t tlsRequest) mutual() bool { return t.Mode != "server" }

type tlsMaterial struct {
	CA         string `json:"ca_pem"`
	ClientCert string `json:"client_cert_pem,omitempty"`
	ClientKey  string `json:"client_key_pem,omitempty"`
}

// createRequest is the request for a server, a cluster (Servers) or a super-cluster (Clusters of Servers each).
type createRequest struct {
	Clusters    int               `json:"clusters"`
	Servers     int               `json:"servers"`
	JetStream   bool              `json:"jetstream"`
	Description string            `json:"description"`
	Snippets    map[string]string `json:"snippets"`
	Template    string            `json:"template"`
	TLS         *tlsRequest       `json:"tls"`
	Trace       bool              `json:"trace"`
}

type shownServer struct {
	Name    string         `json:"name"`
	Cluster string         `json:"cluster"`
	Port    int            `json:"port"`
	Ports   map[string]int `json:"ports,omitempty"`
	Running bool           `json:"running"`
}

type shownInstance struct {
	ID          string        `json:"id"`
	Description string        `json:"description,omitempty"`
	Kind        string        `json:"kind"`
	Servers     []shownServer `json:"servers"`
	TLS         *tlsMaterial  `json:"tls,omitempty"`
}

type summary struct {
	ID          string `json:"id"`
	Description string `json:"description,omitempty"`
	Kind        string `json:"kind"`
	Servers     int    `json:"servers"`
}

// namedRequest names an instance or a server.
type namedRequest struct {
	Instance string `json:"instance_id"`
	Name     string `json:"name"`
}

type updateRequest struct {
	Name       string            `json:"name"`
	Snippets   map[string]string `json:"snippets"`
	Template   string            `json:"template"`
	TLSTimeout *float64          `json:"tls_timeout"`
}
