package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/nats-io/nats.go"
)

// service owns the instances.
type service struct {
	settings settings
	ports    *ports

	mu        sync.Mutex
	instances map[string]*instance
}

func newService(settings settings, ports *ports) *service {
	return &service{settings: settings, ports: ports, instances: map[string]*instance{}}
}

// listen answers each request in a goroutine of its own, because a cluster takes seconds to start.
func (s *service) listen(conn *nats.Conn) error {
	for subject, answer := range map[string]func([]byte) (any, error){
		"tester.create.server":        s.create("server"),
		"tester.create.cluster":       s.create("cluster"),
		"tester.create.super-cluster": s.create("super-cluster"),
		"tester.stop.server":          s.stopServer,
		"tester.start.server":         s.startServer,
		"tester.update.server":        s.updateServer,
		"tester.reload.server":        s.reloadServer,
		"tester.status":               s.status,
		"tester.list":                 s.list,
		"tester.destroy":              s.destroy,
		"tester.reset": func([]byte) (any, error) {
			s.reset()
			return map[string]bool{"shutdown": true}, nil
		},
	} {
		_, err := conn.Subscribe(subject, func(request *nats.Msg) {
			go func() {
				if err := request.RespondMsg(answered(answer(request.Data))); err != nil {
					log.Printf("%s: %v", subject, err)
				}
			}()
		})
		if err != nil {
			return err
		}
	}
	return conn.Flush()
}

func answered(body any, err error) *nats.Msg {
	message := &nats.Msg{Header: nats.Header{}}
	if err == nil {
		message.Data, err = json.Marshal(body)
	}
	if err != nil {
		message.Header.Set("Nats-Service-Error", err.Error())
		message.Header.Set("Nats-Service-Error-Code", "500")
	}
	return message
}

func (s *service) create(kind string) func([]byte) (any, error) {
	return func(data []byte) (any, error) {
		var request createRequest
		if err := json.Unmarshal(data, &request); err != nil {
			return nil, err
		}
		if request.Trace {
			return nil, errors.New("the stand-in captures no traces")
		}
		made, err := newInstance(s.settings, s.ports, kind, request)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.instances[made.id] = made
		s.mu.Unlock()
		return made.shown(), nil
	}
}

func (s *service) stopServer(data []byte) (any, error) {
	return s.withServer(data, func(node *node) (any, error) {
		if !node.process.running() {
			return nil, errNotRunning
		}
		node.process.stop()
		return map[string]bool{"shutdown": true}, nil
	})
}

func (s *service) startServer(data []byte) (any, error) {
	return s.withServer(data, func(node *node) (any, error) {
		return map[string]bool{"started": true}, node.process.start()
	})
}

func (s *service) reloadServer(data []byte) (any, error) {
	return s.withServer(data, func(node *node) (any, error) {
		return map[string]bool{"reloaded": true}, node.process.reload()
	})
}

func (s *service) updateServer(data []byte) (any, error) {
	return s.withServer(data, func(node *node) (any, error) {
		var request updateRequest
		if err := json.Unmarshal(data, &request); err != nil {
			return nil, err
		}
		return map[string]bool{"updated": true}, node.update(request)
	})
}

func (s *service) withServer(data []byte, do func(*node) (any, error)) (any, error) {
	var request namedRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	node := s.find(request.Name)
	if node == nil {
		return nil, fmt.Errorf("no server has the name %q", request.Name)
	}
	node.mu.Lock()
	defer node.mu.Unlock()
	return do(node)
}

func (s *service) find(name string) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, instance := range s.instances {
		for _, node := range instance.nodes {
			if node.values.ServerName == name {
				return node
			}
		}
	}
	return nil
}

func (s *service) status(data []byte) (any, error) {
	var request namedRequest
	if len(data) > 0 {
		if err := json.Unmarshal(data, &request); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := []shownInstance{}
	for id, instance := range s.instances {
		if request.Instance == "" || request.Instance == id {
			shown = append(shown, instance.shown())
		}
	}
	return map[string]any{"instances": shown}, nil
}

func (s *service) list([]byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := []summary{}
	for id, instance := range s.instances {
		shown = append(shown, summary{id, instance.description, instance.kind, len(instance.nodes)})
	}
	return map[string]any{"instances": shown}, nil
}

func (s *service) destroy(data []byte) (any, error) {
	var request namedRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	s.mu.Lock()
	instance := s.instances[request.Instance]
	delete(s.instances, request.Instance)
	s.mu.Unlock()
	if instance == nil {
		return nil, fmt.Errorf("no instance has the id %q", request.Instance)
	}
	instance.destroy(s.settings.keep)
	return map[string]bool{"destroyed": true}, nil
}

func (s *service) reset() {
	s.mu.Lock()
	instances := s.instances
	s.instances = map[string]*instance{}
	s.mu.Unlock()
	for _, instance := range instances {
		instance.destroy(s.settings.keep)
	}
}
