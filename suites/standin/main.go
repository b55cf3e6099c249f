// Command standin answers the requests of the test service that nats.go's and orbit.go's tests expect at
// TESTER_NATS_URL: it starts, stops and reloads servers, clusters and super-clusters of one server program.
//
//	standin -program tidegate -kind tidegate -nats-server nats-server -dir DIR -- TESTS ARGUMENTS
//
// A nats-server of its own carries the requests. The stand-in runs the given program of tests with that server's URL in
// its environment, stops all servers that the tests have left, and ends with the status of the tests.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/nats-io/nats.go"
)

func main() {
	var settings settings
	natsServer := flag.String("nats-server", "nats-server", "the nats-server that carries the requests")
	flag.StringVar(&settings.program, "program", "", "the server program under test")
	flag.StringVar(&settings.kind, "kind", kindNats, "tidegate or nats-server: which command line the program has")
	flag.StringVar(&settings.dir, "dir", "", "the directory for settings, logs and data")
	flag.BoolVar(&settings.keep, "keep", false, "keep the files of destroyed servers")
	flag.Parse()
	if settings.program == "" || settings.dir == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	err := run(*natsServer, settings, flag.Args())
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		os.Exit(failed.ExitCode())
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(natsServer string, settings settings, tests []string) error {
	ports := newPorts()
	port, err := ports.take()
	if err != nil {
		return err
	}
	carrier := &process{
		program: natsServer,
		args:    []string{"-a", "127.0.0.1", "-p", fmt.Sprint(port)},
		logFile: filepath.Join(settings.dir, "carrier.log"),
	}
	if err := carrier.start(); err != nil {
		return err
	}
	defer carrier.stop()

	url := fmt.Sprintf("nats://localhost:%d", port)
	conn, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer conn.Close()

	service := newService(settings, ports)
	defer service.reset()
	if err := service.listen(conn); err != nil {
		return err
	}
	command := exec.Command(tests[0], tests[1:]...)
	command.Env = append(os.Environ(), "TESTER_NATS_URL="+url)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}
