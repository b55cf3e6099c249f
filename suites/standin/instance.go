package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// instance is a server, a cluster or a super-cluster that one test has created.
type instance struct {
	id, description, kind string
	dir                   string
	nodes                 []*node
	tls                   *tlsSettings
}

// node is one server of an instance.
type node struct {
	// mu serializes the requests that change this node.
	mu      sync.Mutex
	dir     string
	values  values
	tls     *tlsSettings
	monitor int
	process *process
}

func newInstance(settings settings, ports *ports, kind string, request createRequest) (*instance, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	made := &instance{id: hex.EncodeToString(id), description: request.Description, kind: kind}
	made.dir = filepath.Join(settings.dir, made.id)
	if err := os.MkdirAll(made.dir, 0o700); err != nil {
		return nil, err
	}
	if request.TLS != nil {
		tls, err := newTLS(*request.TLS, made.dir)
		if err != nil {
			return nil, err
		}
		made.tls = tls
	}
	if err := made.plan(ports, request); err != nil {
		return nil, err
	}
	for _, node := range made.nodes {
		path, err := node.values.write(node.dir, request.Snippets, request.Template, made.tls)
		if err != nil {
			return nil, err
		}
		node.process = &process{
			program: settings.program,
			args:    settings.commandLine(path, node),
			logFile: filepath.Join(node.dir, "server.log"),
		}
	}
	if err := made.start(); err != nil {
		made.destroy(settings.keep)
		return nil, err
	}
	return made, nil
}

func (s settings) commandLine(path string, node *node) []string {
	monitor := fmt.Sprint(node.monitor)
	if s.kind == kindNats {
		return []string{"-c", path, "-m", monitor}
	}
	args := []string{"serve", "--color", "never", "-c", path, "-m", monitor}
	if !node.values.JetStream {
		// Without a `jetstream` block nats-server keeps no streams.
		args = append(args, "--no-streams")
	}
	return args
}

// plan chooses the names, directories and ports of all nodes.
func (i *instance) plan(ports *ports, request createRequest) error {
	short := i.id[:8]
	clusters, size := max(request.Clusters, 1), max(request.Servers, 1)
	gateways := map[string][]string{}
	var names []string
	for c := range clusters {
		var routes []string
		cluster := ""
		if i.kind != "server" {
			cluster = fmt.Sprintf("%s-c%d", short, c+1)
			names = append(names, cluster)
		}
		for s := range size {
			name := fmt.Sprintf("%s-n%d", short, s+1)
			if i.kind == "super-cluster" {
				name = fmt.Sprintf("%s-c%d_s%d", short, c+1, s+1)
			}
			node := &node{dir: filepath.Join(i.dir, name), tls: i.tls}
			if err := os.MkdirAll(node.dir, 0o700); err != nil {
				return err
			}
			store := filepath.Join(node.dir, "store")
			node.values = values{
				ServerName: name, ShortID: short, InstanceID: i.id, ServerIndex: s + 1,
				ServerDir: store, StoreDir: store, Host: "127.0.0.1", AdvertiseHost: "localhost",
				JetStream: request.JetStream, ClusterName: cluster, ClusterIndex: c + 1, ClusterSize: size,
				Ports: map[string]int{}, Gateways: gateways,
			}
			wanted := []*int{&node.values.ClientPort, &node.monitor}
			if cluster != "" {
				wanted = append(wanted, &node.values.ClusterPort)
			}
			if i.kind == "super-cluster" {
				wanted = append(wanted, &node.values.GatewayPort)
			}
			for _, port := range wanted {
				taken, err := ports.take()
				if err != nil {
					return err
				}
				*port = taken
			}
			for _, listener := range listeners {
				if _, wanted := request.Snippets[listener]; wanted {
					taken, err := ports.take()
					if err != nil {
						return err
					}
					node.values.Ports[listener] = taken
				}
			}
			if cluster != "" {
				routes = append(routes, fmt.Sprintf("127.0.0.1:%d", node.values.ClusterPort))
			}
			if i.kind == "super-cluster" {
				gateways[cluster] = append(gateways[cluster], fmt.Sprintf("127.0.0.1:%d", node.values.GatewayPort))
			}
			i.nodes = append(i.nodes, node)
		}
		for _, node := range i.nodes[len(i.nodes)-size:] {
			node.values.Routes = routes
		}
	}
	for _, node := range i.nodes {
		node.values.Clusters = names
	}
	return nil
}

// start starts all nodes at once, and waits until each node of a cluster has routes to the others.
func (i *instance) start() error {
	failed := make([]error, len(i.nodes))
	var group sync.WaitGroup
	for index, node := range i.nodes {
		group.Go(func() { failed[index] = node.process.start() })
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for _, node := range i.nodes {
		if err := node.waitForRoutes(); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) waitForRoutes() error {
	others := len(n.values.Routes) - 1
	for deadline := time.Now().Add(startLimit); others > 0; time.Sleep(poll) {
		if found, err := n.routes(); err == nil && found >= others {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("server %s has no routes to %d others within %s", n.values.ServerName, others, startLimit)
		}
	}
	return nil
}

// routes returns the number of other nodes to which this node has a route.
func (n *node) routes() (int, error) {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/routez", n.monitor))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var page struct {
		Routes []struct {
			RemoteID string `json:"remote_id"`
		} `json:"routes"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		return 0, err
	}
	remotes := map[string]bool{}
	for _, route := range page.Routes {
		remotes[route.RemoteID] = true
	}
	return len(remotes), nil
}

// update writes other settings, which a reload or a start reads.
func (n *node) update(request updateRequest) error {
	if n.tls != nil && request.TLSTimeout != nil {
		n.tls.request.Timeout = *request.TLSTimeout
	}
	_, err := n.values.write(n.dir, request.Snippets, request.Template, n.tls)
	return err
}

// destroy stops all nodes at once.
func (i *instance) destroy(keep bool) {
	var group sync.WaitGroup
	for _, node := range i.nodes {
		group.Go(func() {
			node.mu.Lock()
			defer node.mu.Unlock()
			if node.process != nil {
				node.process.stop()
			}
		})
	}
	group.Wait()
	if !keep {
		_ = os.RemoveAll(i.dir)
	}
}

func (i *instance) shown() shownInstance {
	shown := shownInstance{ID: i.id, Description: i.description, Kind: i.kind, Servers: []shownServer{}}
	for _, node := range i.nodes {
		shown.Servers = append(shown.Servers, shownServer{
			Name:    node.values.ServerName,
			Cluster: node.values.ClusterName,
			Port:    node.values.ClientPort,
			Ports:   node.values.Ports,
			Running: node.process.running(),
		})
	}
	if i.tls != nil {
		shown.TLS = &i.tls.material
	}
	return shown
}
