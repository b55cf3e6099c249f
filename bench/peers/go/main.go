// Command peers drives the Redis clients in Go with which Tidegate is compared. Lines on stdin control it
// (bench/peers/README.md). The process is long-lived and has one load at a time: `load` connects and starts callers,
// `measure` measures them for a while, `rest` ends them.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Every rival, and the Go module from which the program reads the rival's version.
var systems = []struct {
	name, module string
	connect      func(loadRequest) (client, error)
}{
	{"rueidis", "github.com/redis/rueidis", connectRueidis},
	{"go-redis", "github.com/redis/go-redis/v9", connectGoRedis},
}

type answer map[string]any

func main() {
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	var running *load
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		reply, err := handle(lines.Text(), &running)
		if err != nil {
			reply = answer{"error": err.Error()}
		}
		// The bench that reads the answers has ended, so this program ends, too.
		if out.Encode(reply) != nil {
			return
		}
	}
}

func handle(line string, running **load) (answer, error) {
	request, err := parse(line)
	if err != nil {
		return nil, err
	}
	switch request.verb {
	case "hello":
		var list []answer
		for _, system := range systems {
			list = append(list, answer{"system": system.name, "version": version(system.module)})
		}
		return answer{"systems": list}, nil
	case "load":
		if *running != nil {
			return nil, errors.New("there is a load already: rest first")
		}
		started, err := begin(request)
		if err != nil {
			return nil, err
		}
		*running = started
		return answer{"system": started.system}, nil
	case "measure":
		if *running == nil {
			return nil, errors.New("nothing to measure: load first")
		}
		seconds, err := request.float("seconds", 0.001, 600)
		if err != nil {
			return nil, err
		}
		return (*running).measure(time.Duration(seconds * float64(time.Second)))
	case "rest":
		if *running != nil {
			(*running).end()
			*running = nil
		}
		return answer{}, nil
	}
	return nil, fmt.Errorf("unknown request: %s", request.verb)
}

func begin(request request) (*load, error) {
	asked, err := request.load()
	if err != nil {
		return nil, err
	}
	for _, system := range systems {
		if system.name == asked.system {
			return start(asked, version(system.module), system.connect)
		}
	}
	return nil, fmt.Errorf("unknown system: %s", asked.system)
}

// Returns the version of a module that was built into this program.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return ""
}

type request struct {
	verb   string
	fields map[string]string
}

func parse(line string) (request, error) {
	words := strings.Fields(line)
	parsed := request{verb: words[0], fields: map[string]string{}}
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return parsed, fmt.Errorf("not key=value: %s", word)
		}
		parsed.fields[key] = value
	}
	return parsed, nil
}

func (r request) text(key string) (string, error) {
	value, ok := r.fields[key]
	if !ok {
		return "", fmt.Errorf("%s needs %s=", r.verb, key)
	}
	return value, nil
}

func (r request) float(key string, least, most float64) (float64, error) {
	text, err := r.text(key)
	if err != nil {
		return 0, err
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value >= least && value <= most) {
		return 0, fmt.Errorf("%s=%s: give a number from %v to %v", key, text, least, most)
	}
	return value, nil
}

// The settings of a load. With rate 0 each caller calls again as soon as it is answered.
type loadRequest struct {
	system, addr, command string
	value, callers        int
	rate                  float64
	delay, warmUp         time.Duration
}

func (r request) load() (loadRequest, error) {
	var asked loadRequest
	var errs []error
	text := func(key string) string {
		value, err := r.text(key)
		errs = append(errs, err)
		return value
	}
	number := func(key string, fallback string, least, most float64) float64 {
		if _, ok := r.fields[key]; !ok && fallback != "" {
			r.fields[key] = fallback
		}
		value, err := r.float(key, least, most)
		errs = append(errs, err)
		return value
	}
	asked.system, asked.addr, asked.command = text("system"), text("addr"), text("command")
	asked.value = int(number("value", "", 1, 1<<26))
	asked.callers = int(number("callers", "", 1, 1<<16))
	asked.rate = number("rate", "0", 0, 1e7)
	asked.delay = time.Duration(number("delay_us", "0", 0, 1e6) * 1e3)
	asked.warmUp = time.Duration(number("warm_up", "0", 0, 600) * 1e9)
	switch asked.command {
	case "publish", "get", "set", "mix":
	default:
		errs = append(errs, fmt.Errorf("command=%s: give publish, get, set or mix", asked.command))
	}
	// Go's runtime has no current-thread form or threads for callers, and neither client has several policies.
	for key, only := range map[string]string{"workers": "1", "threads": "0", "policy": ""} {
		if value, ok := r.fields[key]; ok && value != only {
			errs = append(errs, fmt.Errorf("%s=%s is not supported by %s", key, value, asked.system))
		}
	}
	return asked, errors.Join(errs...)
}
