package perf

import (
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// These are the upper limits of options.
const (
	maxQPs        = 1024
	maxDepth      = 4096
	maxModeration = 1024
	maxSamples    = 10_000_000 // limit for Iterations with Unsorted
	maxIterations = 1 << 40
)

// Completion moderation as in perftest: presetModeration messages share one completion, or the TX depth if that is
// smaller. Each large message has a completion of its own.
const (
	presetModeration = 100
	largeMessage     = 8 << 10 // size in octets above which a message is large
)

// list returns how many messages are posted with one call.
func (o Options) list() uint64 { return uint64(max(o.List, 1)) }

// moderation returns how many messages of a size share one completion.
func (o Options) moderation(size int) uint64 {
	switch {
	case o.Test.Latency():
		return 1
	case o.Moderation > 0:
		return uint64(o.Moderation)
	case o.List > 1:
		return o.list()
	case size > largeMessage:
		return 1
	}
	return uint64(min(presetModeration, o.TxDepth))
}

// Check returns an error for wrong options, and names them by their flags.
func (o Options) Check() error {
	if err := o.checkRanges(); err != nil {
		return err
	}
	if err := o.checkTime(); err != nil {
		return err
	}
	if err := o.checkPosting(); err != nil {
		return err
	}
	if err := o.checkPartner(); err != nil {
		return err
	}
	return o.checkMemory()
}

func (o Options) checkRanges() error {
	switch {
	case o.Daemon != "" && (len(o.Links) != 0 || o.KernelPort || o.Generic || o.Given()):
		return errors.New("--daemon, and -d, --carrier, --for, --kernel-port or --generic: choose one, because the daemon has the interfaces")
	case o.Daemon == "" && !o.Chooses() && (len(o.Links) == 0) == !o.KernelPort:
		return errors.New("choose one of -d IFACE, --daemon and --carrier kernel")
	case o.Generic && o.KernelPort:
		return errors.New("--generic and --kernel-port: choose one")
	case o.Port == 0:
		return errors.New("-p 0: choose 1 to 65535")
	case o.Size < 1 || o.Size > MaxSize:
		return fmt.Errorf("-s %d: choose 1 to %d octets", o.Size, MaxSize)
	case o.QPs < 1 || o.QPs > maxQPs:
		return fmt.Errorf("-q %d: choose 1 to %d", o.QPs, maxQPs)
	case o.TxDepth < 1 || o.TxDepth > maxDepth:
		return fmt.Errorf("-t %d: choose 1 to %d", o.TxDepth, maxDepth)
	case o.RxDepth < 1 || o.RxDepth > maxDepth:
		return fmt.Errorf("-r %d: choose 1 to %d", o.RxDepth, maxDepth)
	case o.Inline < 0:
		return fmt.Errorf("-I %d: choose 0 or more octets", o.Inline)
	case o.Inline > 0 && o.Test.op() == rdma.WRRead:
		return errors.New("-I: a Read sends no data of its own: leave it out")
	}
	return nil
}

// checkTime checks the options for how long a size is measured.
func (o Options) checkTime() error {
	byClock := o.Duration != 0
	switch {
	case byClock && (o.Duration < 10*time.Millisecond || o.Duration > 1e6*time.Second):
		return fmt.Errorf("-D %v: choose 0.01 to 1000000 seconds", o.Duration.Seconds())
	case !byClock && (o.Iterations < 1 || o.Iterations > maxIterations):
		return fmt.Errorf("-n %d: choose 1 to 2^40", o.Iterations)
	case o.Margin < 0:
		return fmt.Errorf("-f %v: choose 0 or more seconds", o.Margin.Seconds())
	case o.Margin > 0 && !byClock:
		return errors.New("-f has no meaning without -D")
	case o.Margin > 0 && o.Endless:
		return errors.New("-f and --run_infinitely: choose one")
	case o.Margin > 0 && o.Duration <= 2*o.Margin:
		return fmt.Errorf("-f %v: two margins take all of -D %v: choose a smaller one, or a longer -D", o.Margin.Seconds(), o.Duration.Seconds())
	case o.Endless && o.All:
		return errors.New("-a and --run_infinitely: choose one")
	case o.Unsorted && byClock:
		return errors.New("-U keeps every latency: give their number by -n instead of -D")
	case o.Unsorted && o.Iterations > maxSamples:
		return fmt.Errorf("-U keeps every latency: choose -n up to %d", maxSamples)
	}
	return nil
}

// checkPosting checks the options for how a bandwidth test posts messages.
func (o Options) checkPosting() error {
	switch most := o.longestList(); {
	case o.List < 0:
		return fmt.Errorf("-l %d: choose 1 or more", o.List)
	case o.Moderation < 0 || o.Moderation > maxModeration:
		return fmt.Errorf("-Q %d: choose 1 to %d", o.Moderation, maxModeration)
	case o.Moderation > o.TxDepth:
		return fmt.Errorf("-Q %d: more than -t %d: no completion would come", o.Moderation, o.TxDepth)
	case o.List > o.TxDepth:
		return fmt.Errorf("-l %d: more than -t %d: no list would fit", o.List, o.TxDepth)
	case o.List > most:
		return fmt.Errorf("-l %d: with -r %d choose up to %d", o.List, o.RxDepth, most)
	case o.List > 1 && o.Moderation > 0 && o.List%o.Moderation != 0:
		return fmt.Errorf("-l %d: choose a multiple of -Q %d", o.List, o.Moderation)
	case o.List > 1 && o.Duration == 0 && o.Iterations%o.list() != 0:
		return fmt.Errorf("-n %d: choose a multiple of -l %d", o.Iterations, o.List)
	}
	return nil
}

// longestList returns the longest list for which the peer always reports enough free receives.
func (o Options) longestList() int {
	if o.Test.op() != rdmaSend {
		return o.TxDepth
	}
	if o.Perftest {
		return int(o.window()) - 1
	}
	return o.RxDepth - int(o.share()) + 1
}

// Lower limits of perftest for options.
const (
	leastIterations = 5
	leastRxDepth    = 4 // a third of the depth must not be 0, and perftest makes an odd depth even
)

// checkPartner rejects options that perftest does not support, or that its exchange cannot tell the peer.
func (o Options) checkPartner() error {
	if !o.Perftest {
		return nil
	}
	turns := o.Test == WriteLat || o.Test == SendLat
	switch {
	case o.Verify:
		return errors.New("--verify and --perftest: perftest's octets follow no pattern: leave --verify out")
	case o.Endless:
		return errors.New("--run_infinitely and --perftest: choose one")
	case o.Duration == 0 && o.Iterations < leastIterations:
		return fmt.Errorf("-n %d: perftest takes %d or more", o.Iterations, leastIterations)
	case o.Duration > 0 && o.All:
		return errors.New("-a, -D and --perftest: choose two")
	case o.Duration > 0 && (turns || o.Both && o.Test.op() == rdmaSend):
		return fmt.Errorf("-D and --perftest: the ends of %s would not stop at the same message: give -n instead", o.title())
	case o.Test == SendBW && o.RxDepth < leastRxDepth:
		return fmt.Errorf("-r %d: with --perftest choose %d or more", o.RxDepth, leastRxDepth)
	case o.Test == WriteLat && o.Events:
		return errors.New("-e and --perftest: choose one: write_lat polls memory, which causes no event")
	}
	return nil
}
