package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	rounds    int
	measured  time.Duration
	warm      time.Duration
	mtus      []int
	spin      time.Duration
	only      string
	takeOvers int
	json      bool
	out       string
	profile   string
}

func parse() (o options, err error) {
	flag.IntVar(&o.rounds, "rounds", 5, "how often every case is measured")
	flag.DurationVar(&o.measured, "time", time.Second, "how long each stream is measured in each round")
	flag.DurationVar(&o.warm, "warm", 250*time.Millisecond, "how long each stream runs before that")
	mtus := flag.String("mtu", "1500,3506", "MTUs, in octets")
	flag.DurationVar(&o.spin, "spin", 0, "how long an idle engine looks for work before it sleeps")
	flag.StringVar(&o.only, "only", "", "measure only streams with one of these, with commas between, in their name: \"engine > engine threads,write\"")
	flag.IntVar(&o.takeOvers, "takeovers", 128, "take-overs in each round, one after the other and 64 at once; 0 for none")
	flag.BoolVar(&o.json, "json", false, "print everything as JSON")
	flag.StringVar(&o.out, "out", "", "write the tables to this file too")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a processor profile of the whole run to this file")
	flag.Parse()
	if flag.NArg() != 0 || o.rounds < 1 || o.measured <= 0 || o.takeOvers < 0 {
		return o, errors.New("see -help: no arguments, at least one round, and a time above 0")
	}
	for _, text := range strings.Split(*mtus, ",") {
		mtu, err := strconv.Atoi(text)
		if err != nil {
			return o, fmt.Errorf("MTU %q: give numbers, with commas between", text)
		}
		o.mtus = append(o.mtus, mtu)
	}
	return o, nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	o, err := parse()
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces and AF_XDP need root: run it with sudo")
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.NumCPU()) // two hosts
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	r, err := measureAll(context.Background(), o)
	if err != nil {
		return err
	}
	return publish(r, o)
}

// publish prints the report, and writes it where it is wanted.
func publish(r *report, o options) error {
	var text bytes.Buffer
	r.print(&text)
	if o.out != "" {
		if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(o.out, text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if o.json {
		return r.printJSON(os.Stdout)
	}
	_, err := os.Stdout.Write(text.Bytes())
	return err
}
