package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The calls of a Redis client that the bench measures. All callers use one client at the same time.
type client interface {
	publish(channel, message string) error
	get(key string) (string, error)
	set(key, value string) error
	close()
}

// A load: callers at work. Without a rate, each caller calls again as soon as it is answered. With a rate, a pacer hands
// out the time at which each command is due, and the next free caller takes it. Latency counts from the due time, so that
// a late answer also counts for the commands that wait behind it.
type load struct {
	system, version string
	client          client
	value           string
	stop            atomic.Bool
	callers         sync.WaitGroup
	done            []counter
	counting        atomic.Bool
	latency         histogram
	failed          atomic.Pointer[string]
	due             chan int64
	began           time.Time
}

// The number of commands of one caller that were answered, on a cache line of its own.
type counter struct {
	count atomic.Uint64
	_     [56]byte
}

const (
	// The number of keys that the bench has filled; caller n uses the key n modulo this number.
	keys = 1024
	// Without a rate, a caller times one command in this many: reading the clock costs as much as some clients do.
	timedEvery = 8
	// The interval at which the pacer checks for due commands.
	tick = 100 * time.Microsecond
)

func start(asked loadRequest, version string, connect func(loadRequest) (client, error)) (*load, error) {
	client, err := connect(asked)
	if err != nil {
		return nil, err
	}
	l := &load{
		system: asked.system, version: version, client: client,
		value: strings.Repeat("x", asked.value), done: make([]counter, asked.callers), began: time.Now(),
	}
	if asked.rate > 0 {
		// If the channel is full, further commands stay due at the pacer.
		l.due = make(chan int64, max(1024, int(asked.rate)))
		if err := l.pace(asked.rate); err != nil {
			client.close()
			return nil, err
		}
	}
	l.callers.Add(asked.callers)
	for who := range asked.callers {
		go l.call(who, asked.command)
	}
	time.Sleep(asked.warmUp)
	return l, nil
}

func (l *load) call(who int, command string) {
	defer l.callers.Done()
	key := fmt.Sprintf("key:%d", who%keys)
	for n := uint64(0); !l.stop.Load(); n++ {
		var start int64
		timed := n%timedEvery == 0 || l.due != nil
		if l.due != nil {
			var ok bool
			if start, ok = <-l.due; !ok {
				return
			}
		} else if timed {
			start = l.now()
		}
		if err := l.do(command, key, uint64(who)+n); err != nil {
			text := err.Error()
			l.failed.CompareAndSwap(nil, &text)
			return
		}
		l.done[who].count.Store(n + 1)
		if timed && l.counting.Load() {
			l.latency.record(uint64(max(0, l.now()-start)))
		}
	}
}

func (l *load) do(command, key string, turn uint64) error {
	switch {
	case command == "publish":
		return l.client.publish("tidegate", l.value)
	case command == "get" || command == "mix" && turn%5 != 0:
		got, err := l.client.get(key)
		if err == nil && len(got) != len(l.value) {
			return fmt.Errorf("GET answered %d bytes, not %d", len(got), len(l.value))
		}
		return err
	default:
		return l.client.set(key, l.value)
	}
}

// Hands out due commands until the load ends. The runtime's own poller waits for the timer, as for the clients' sockets.
// The cost of this counts as the application's, equally for every client.
func (l *load) pace(rate float64) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return err
	}
	every := unix.NsecToTimespec(int64(tick))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	timer := os.NewFile(uintptr(fd), "timer")
	l.callers.Go(func() {
		defer timer.Close()
		defer close(l.due)
		gap := 1e9 / rate
		begin := l.now()
		var next float64
		for expired := make([]byte, 8); !l.stop.Load(); {
			if _, err := timer.Read(expired); err != nil {
				text := "the timer: " + err.Error()
				l.failed.CompareAndSwap(nil, &text)
				return
			}
			now := l.now()
		give:
			for due := begin + int64(next*gap); due <= now; due = begin + int64(next*gap) {
				select {
				case l.due <- due:
					next++
				default:
					break give
				}
			}
		}
	})
	return nil
}

func (l *load) now() int64 { return int64(time.Since(l.began)) }

func (l *load) count() (count uint64) {
	for i := range l.done {
		count += l.done[i].count.Load()
	}
	return count
}

// Measures the load for a window, and longer if no command was answered in that time.
func (l *load) measure(window time.Duration) (answer, error) {
	l.latency.clear()
	l.counting.Store(true)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, cpu, ops := time.Now(), cpuTime(), l.count()
	time.Sleep(window)
	// No command was answered, because other programs use the machine: the measurement goes on.
	for l.count() == ops && l.failed.Load() == nil && time.Since(start) < 100*window {
		time.Sleep(time.Millisecond)
	}
	ops, cpu = l.count()-ops, cpuTime()-cpu
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	l.counting.Store(false)
	if failed := l.failed.Load(); failed != nil {
		return nil, errors.New(*failed)
	}
	if ops == 0 {
		return nil, fmt.Errorf("no command was answered within %s", elapsed)
	}
	found := answer{
		"system": l.system, "version": l.version, "ops": ops,
		"ops_per_s": float64(ops) / elapsed.Seconds(), "elapsed_s": elapsed.Seconds(), "cpu_s": cpu.Seconds(),
		"allocs": after.Mallocs - before.Mallocs, "alloc_bytes": after.TotalAlloc - before.TotalAlloc,
	}
	if mean, ok := l.latency.mean(); ok {
		found["mean_us"], found["p50_us"], found["p99_us"] = mean/1e3, l.latency.quantile(.5)/1e3, l.latency.quantile(.99)/1e3
	}
	return found, nil
}

// Ends the callers, each of them after the answer that it waits for.
func (l *load) end() {
	l.stop.Store(true)
	l.callers.Wait()
	l.client.close()
}

// Returns the processor time of the whole process so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
