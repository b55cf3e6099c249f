package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// Ports lie below the range from which the kernel takes ports of outgoing connections, so that no client takes the port
// of a server that is stopped for a while.
const (
	firstPort = 20000
	lastPort  = 31999
)

type ports struct {
	mu   sync.Mutex
	next int
}

func newPorts() *ports { return &ports{next: firstPort} }

// take returns a port on which nothing listens. It comes back to the same port after all others.
func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range lastPort - firstPort {
		port := p.next
		p.next++
		if p.next > lastPort {
			p.next = firstPort
		}
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		_ = listener.Close()
		return port, nil
	}
	return 0, errors.New("no port is free")
}
