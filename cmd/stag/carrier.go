package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/rdma"
)

// carrierManual is the part about carriers of the manual pages of commands that open an
// adapter.
const carrierManual = `

Connections run over AF_XDP on the interfaces, or over the kernel's TCP, the kernel port.
The two ends may differ. --carrier afxdp and --carrier kernel name one of them, and a
carrier that cannot be had is an error. With --carrier kernel, an interface may be named
and is not used. --carrier auto looks at the driver, the mode of XDP, zero copy, the
capabilities and the memlock limit, and prints what it has chosen and why. For latency it
chooses AF_XDP wherever that runs in native mode, and for throughput only with zero copy:
without, the kernel's TCP moves more octets for each processor second. --for latency or
throughput says which. stag show devices prints the carrier and the reason, and stag
doctor says what auto would choose.`

// carrierValue is the value of --carrier.
type carrierValue struct{ to *rdma.Carrier }

// String implements pflag.Value.
func (v carrierValue) String() string {
	if v.to == nil {
		return ""
	}
	return v.to.String()
}

// Set implements pflag.Value.
func (v carrierValue) Set(text string) (err error) {
	*v.to, err = rdma.ParseCarrier(text)
	return err
}

// Type implements pflag.Value.
func (carrierValue) Type() string { return "auto|afxdp|kernel" }

// wishValue is the value of --for.
type wishValue struct{ to *rdma.Wish }

// String implements pflag.Value.
func (v wishValue) String() string {
	if v.to == nil {
		return ""
	}
	return v.to.String()
}

// Set implements pflag.Value.
func (v wishValue) Set(text string) (err error) {
	*v.to, err = rdma.ParseWish(text)
	return err
}

// Type implements pflag.Value.
func (wishValue) Type() string { return "latency|throughput" }

// carrierFlags adds the flags that say what carries the connections. kernel is the usage
// of --kernel-port.
func carrierFlags(f *pflag.FlagSet, asked *carrier.Asked, kernelPort *bool, kernel string) {
	f.Var(carrierValue{&asked.Carrier}, "carrier", "what carries connections; auto chooses and says why (default afxdp with an interface, else kernel)")
	f.Var(wishValue{&asked.For}, "for", "what matters; without --carrier the same as --carrier auto")
	f.BoolVar(kernelPort, "kernel-port", false, "same as --carrier kernel: "+kernel)
}

// checkCarrier finds mistakes in --carrier, --for and --kernel-port. With --carrier kernel
// it sets kernelPort, and the interfaces are not used. usual is the wish of --carrier auto
// without --for. flag is the flag that names interfaces.
func checkCarrier(asked *carrier.Asked, kernelPort *bool, interfaces *[]string, flag string, usual rdma.Wish) error {
	switch {
	case *kernelPort && asked.Carrier != rdma.CarrierAsNamed && asked.Carrier != rdma.CarrierKernel:
		return fmt.Errorf("--kernel-port and --carrier %v: choose one", asked.Carrier)
	case asked.For != rdma.ForAnything && (*kernelPort || asked.Carrier == rdma.CarrierAFXDP || asked.Carrier == rdma.CarrierKernel):
		return errors.New("--for says what --carrier auto weighs, and the carrier is named: choose one")
	case asked.Carrier == rdma.CarrierAFXDP && len(*interfaces) == 0:
		return fmt.Errorf("--carrier afxdp needs an interface: %s IFACE", flag)
	case asked.Carrier == rdma.CarrierKernel:
		*kernelPort, *interfaces = true, nil
	case asked.Carrier == rdma.CarrierAuto && asked.For == rdma.ForAnything:
		asked.For = usual
	}
	if *kernelPort {
		asked.Carrier = rdma.CarrierAsNamed // KernelPort says it
	}
	return nil
}
