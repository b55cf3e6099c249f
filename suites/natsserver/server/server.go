// Package server stands in for the package of nats-server that tests embed: it starts the `nats-server` in PATH as a
// process, with as much of the package as orbit.go's tests use.
package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startLimit = 20 * time.Second
	stopLimit  = 15 * time.Second
	poll       = 10 * time.Millisecond
	listening  = "client connections on "
)

// ClusterOpts has the name alone: no test sets a port for routes here.
type ClusterOpts struct{ Name string }

// Options become flags of the server.
type Options struct {
	Host                  string
	Port                  int
	NoLog, NoSigs         bool
	MaxControlLine        int32
	DisableShortFirstPing bool
	JetStream             bool
	StoreDir              string
	Cluster               ClusterOpts
	ConfigFile            string
}

// JetStreamConfig tells where the streams are.
type JetStreamConfig struct{ StoreDir string }

// ConnInfo is one connection in an answer of the server.
type ConnInfo struct {
	Name string `json:"name"`
}

// ConnInfos are the connections of an answer.
type ConnInfos []*ConnInfo

// Server is one server process.
type Server struct {
	options *Options
	dir     string
	command *exec.Cmd
	ended   chan struct{}
	info    struct {
		ID   string `json:"server_id"`
		Name string `json:"server_name"`
		Port int    `json:"port"`
	}
}

// ProcessConfigFile returns options that name the file. The process reads it.
func ProcessConfigFile(path string) (*Options, error) {
	_, err := os.Stat(path)
	return &Options{ConfigFile: path}, err
}

// NewServer returns a server that does not run yet.
func NewServer(options *Options) (*Server, error) {
	dir, err := os.MkdirTemp("", "server-")
	return &Server{options: options, dir: dir}, err
}

// Start starts the process. ReadyForConnections waits for it.
func (s *Server) Start() {
	if s.options.StoreDir == "" {
		s.options.StoreDir = filepath.Join(s.dir, "store")
	}
	args := []string{"-p", fmt.Sprint(s.options.Port), "-sd", s.options.StoreDir, "-l", s.logFile()}
	if s.options.Host != "" {
		args = append(args, "-a", s.options.Host)
	}
	if s.options.JetStream {
		args = append(args, "-js")
	}
	if s.options.ConfigFile != "" {
		args = append(args, "-c", s.options.ConfigFile)
	}
	s.command = exec.Command("nats-server", args...)
	s.command.Stderr = os.Stderr
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.ended = make(chan struct{})
	if err := s.command.Start(); err != nil {
		panic(err)
	}
	go func() {
		_ = s.command.Wait()
		close(s.ended)
	}()
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

// ReadyForConnections waits until the server accepts clients.
func (s *Server) ReadyForConnections(limit time.Duration) bool {
	for deadline := time.Now().Add(max(limit, startLimit)); time.Now().Before(deadline); time.Sleep(poll) {
		if s.greeted() {
			return true
		}
		select {
		case <-s.ended:
			return false
		default:
		}
	}
	return false
}

// greeted reads the server's first line at the address that the log tells.
func (s *Server) greeted() bool {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return false
	}
	_, rest, found := strings.Cut(string(text), listening)
	address, _, whole := strings.Cut(rest, "\n")
	if !found || !whole {
		return false
	}
	conn, err := net.DialTimeout("tcp", strings.TrimSpace(strings.Replace(address, "0.0.0.0", "127.0.0.1", 1)), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &s.info) == nil
}

// ClientURL returns the URL for clients.
func (s *Server) ClientURL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.info.Port) }

// ID returns the server's id.
func (s *Server) ID() string { return s.info.ID }

// Name returns the server's name.
func (s *Server) Name() string { return s.info.Name }

// JetStreamConfig returns nil if the options ask for no streams.
func (s *Server) JetStreamConfig() *JetStreamConfig {
	if !s.options.JetStream {
		return nil
	}
	return &JetStreamConfig{StoreDir: s.options.StoreDir}
}

// Shutdown asks the process to end, and kills it if it does not.
func (s *Server) Shutdown() {
	if s.command == nil {
		return
	}
	_ = s.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopLimit):
		_ = s.command.Process.Kill()
		<-s.ended
	}
	_ = os.RemoveAll(s.dir)
}

// WaitForShutdown returns once the process has ended.
func (s *Server) WaitForShutdown() { <-s.ended }
