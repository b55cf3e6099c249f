// Package test stands in for the package of nats-server by which tests start servers.
package test

import (
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const startLimit = 20 * time.Second

// DefaultTestOptions are the options from which tests start.
var DefaultTestOptions = server.Options{Host: "127.0.0.1", Port: 4222, NoLog: true, NoSigs: true}

// RunServer returns a running server.
func RunServer(options *server.Options) *server.Server {
	copied := *options
	started, err := server.NewServer(&copied)
	if err != nil {
		panic(err)
	}
	started.Start()
	if !started.ReadyForConnections(startLimit) {
		panic(fmt.Sprintf("the server does not accept clients within %s", startLimit))
	}
	return started
}

// RunServerWithConfig returns a running server with the settings of a file.
func RunServerWithConfig(path string) (*server.Server, *server.Options) {
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		panic(err)
	}
	options.Port = -1
	return RunServer(options), options
}
