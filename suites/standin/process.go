package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// A loaded machine starts a server slowly; the tests' clients wait 30 s for a create request.
	startLimit = 20 * time.Second
	stopLimit  = 15 * time.Second
	poll       = 10 * time.Millisecond
)

// Both servers log these lines.
const (
	lineReady    = "Server is ready"
	lineReloaded = "Reloaded server configuration"
)

var errNotRunning = errors.New("Server not running")

// process is one server process, which may end and start again.
type process struct {
	program string
	args    []string
	logFile string

	mu      sync.Mutex
	command *exec.Cmd
	// ended closes when the process has ended.
	ended chan struct{}
}

func (p *process) running() bool {
	command, _ := p.current()
	return command != nil
}

// current returns the command if it runs, and the channel that closes when it ends.
func (p *process) current() (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return nil, nil
	}
	select {
	case <-p.ended:
		return nil, nil
	default:
		return p.command, p.ended
	}
}

// start returns once the server logs that it is ready.
func (p *process) start() error {
	if p.running() {
		return errors.New("Server already running")
	}
	out, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	before := p.logged()
	command := exec.Command(p.program, p.args...)
	command.Stdout, command.Stderr = out, out
	// A stand-in that is killed takes its servers with it.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.command, p.ended = command, ended
	p.mu.Unlock()
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	if err := p.waitForLine(lineReady, before, startLimit); err != nil {
		p.stop()
		return err
	}
	return nil
}

// stop asks the process to end, and kills it if it does not.
func (p *process) stop() {
	command, ended := p.current()
	if command == nil {
		return
	}
	_ = command.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(stopLimit):
		_ = command.Process.Kill()
		<-ended
	}
}

// reload returns once the server has read its settings again.
func (p *process) reload() error {
	command, _ := p.current()
	if command == nil {
		return errNotRunning
	}
	before := p.logged()
	if err := command.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	return p.waitForLine(lineReloaded, before, startLimit)
}

// logged returns the present length of the log, from which waitForLine looks for a line.
func (p *process) logged() int {
	info, err := os.Stat(p.logFile)
	if err != nil {
		return 0
	}
	return int(info.Size())
}

func (p *process) waitForLine(line string, from int, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(poll) {
		running := p.running()
		text, err := os.ReadFile(p.logFile)
		if err != nil {
			return err
		}
		text = text[min(from, len(text)):]
		switch {
		case bytes.Contains(text, []byte(line)):
			return nil
		case bytes.Contains(text, []byte("Failed to reload")):
			return fmt.Errorf("reload failed: %s", lastLines(text))
		case !running:
			return fmt.Errorf("the server has ended: %s", lastLines(text))
		case time.Now().After(deadline):
			return fmt.Errorf("no line %q within %s: %s", line, limit, lastLines(text))
		}
	}
}

// lastLines returns the end of a log in one line, because it becomes the value of a header.
func lastLines(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
