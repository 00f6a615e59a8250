package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/iscsi"
)

// mostSessions is the limit for --sessions, and targetSessions is the default.
const (
	targetSessions = 256
	mostSessions   = 65535
)

// targetFlags are the flags of iscsi target.
type targetFlags struct {
	iscsiFlags
	storage.TargetOptions
	portals    []string
	iser       []string
	luns, from []string
}

func iscsiTarget() *cobra.Command {
	var o targetFlags
	cmd := &cobra.Command{
		Use:   "target",
		Short: "Serve disks to iSCSI initiators",
		Long: `Serves disks as logical units of one target until Ctrl-C. A medium is ram:SIZE,
file:PATH (a file or a block device), or nbd:URL (an export of an NBD server).
Without --chap-file, --allow and --allow-from, everyone who reaches the portal may
read and write the disks.`,
		Annotations: manual(iscsiTargetManual),
		Example: `  stag iscsi target --name iqn.2026-01.test.stag:t1 --lun 1=ram:64M
  stag iscsi target --name iqn.2026-01.test.stag:t1 --lun 1=ram:64M --iser 192.0.2.1
  stag iscsi target --name iqn.2026-01.test.stag:t1 --lun 1=file:/srv/disk.img \
    --lun 2=nbd://192.0.2.9/export --portal 192.0.2.1 -i eth1 --chap-file /etc/stag/chap`,
		Args: exactly(0, ""),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return usageError{fmt.Errorf("%s: %w", commandName(cmd), err)}
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	o.flags(f)
	f.StringVar(&o.Name, "name", "", "iSCSI name of the target")
	f.StringArrayVar(&o.luns, "lun", nil, "logical unit N with its medium; may be repeated")
	f.StringArrayVar(&o.portals, "portal", nil, "address and port to listen at; without an address, all addresses of this host (default :"+iscsi.DefaultPort+", and none with --iser); may be repeated")
	f.StringArrayVar(&o.iser, "iser", nil, "address and port to listen at for iSER; with --portal, the target serves both; may be repeated")
	f.BoolVar(&o.ReadOnly, "read-only", false, "refuse writes to all disks")
	f.IntVar(&o.BlockSize, "block-size", 512, "octets of a logical block, 512 or 4096")
	f.BoolVar(&o.Digests, "digests", false, "demand header and data digests (default the initiator chooses)")
	f.StringArrayVar(&o.Allow, "allow", nil, "permit only initiators whose name matches the pattern, as in iqn.2026-01.test.*; may be repeated")
	f.StringArrayVar(&o.from, "allow-from", nil, "permit only initiators with such an address, as in 192.0.2.0/24; may be repeated")
	f.StringVar(&o.Reservations, "reservations", "", "directory that keeps persistent reservations from one run to the next (default they end with the command)")
	f.IntVar(&o.Sessions, "sessions", targetSessions, "most sessions at a time")
	return cmd
}

// check finds mistakes on the command line, and reads the media and addresses.
func (o *targetFlags) check() (err error) {
	if err := o.iscsiFlags.check(); err != nil {
		return err
	}
	switch {
	case o.Name == "":
		return errors.New("name the target: --name iqn.YEAR-MONTH.DOMAIN:NAME")
	case len(o.luns) == 0:
		return errors.New("give it a disk: --lun 1=ram:64M")
	case o.BlockSize != 512 && o.BlockSize != 4096:
		return fmt.Errorf("--block-size %d: choose 512 or 4096", o.BlockSize)
	case o.Sessions < 1 || o.Sessions > mostSessions:
		return fmt.Errorf("--sessions %d: choose 1 to %d", o.Sessions, mostSessions)
	}
	if err := o.checkPortals(); err != nil {
		return err
	}
	for _, word := range o.luns {
		m, err := storage.ParseMedium(word)
		if err != nil {
			return fmt.Errorf("--lun %w", err)
		}
		if slices.ContainsFunc(o.Media, func(x storage.Medium) bool { return x.LUN == m.LUN }) {
			return fmt.Errorf("--lun %q: LUN %d is there already: choose another number", word, m.LUN)
		}
		o.Media = append(o.Media, m)
	}
	for _, word := range o.from {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			return fmt.Errorf("--allow-from %q: write ADDRESS/BITS, as in 192.0.2.0/24 or 2001:db8::1/128", word)
		}
		o.From = append(o.From, p)
	}
	return nil
}

// checkPortals reads the addresses of the portals.
func (o *targetFlags) checkPortals() (err error) {
	if len(o.portals)+len(o.iser) == 0 {
		o.portals = []string{":" + iscsi.DefaultPort}
	}
	if o.Portals, err = addresses(o.portals); err != nil {
		return fmt.Errorf("--portal %w", err)
	}
	if o.ISER, err = addresses(o.iser); err != nil {
		return fmt.Errorf("--iser %w", err)
	}
	return nil
}

// addresses returns host:port of each word.
func addresses(words []string) (all []string, err error) {
	for _, word := range words {
		p, err := storage.Portal(word)
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, p) {
			return nil, fmt.Errorf("%q is there twice: leave one out", word)
		}
		all = append(all, p)
	}
	return all, nil
}

func (o *targetFlags) run(cmd *cobra.Command) error {
	if err := o.start(cmd.Context()); err != nil {
		return iscsiFailed(cmd, err)
	}
	t := o.TargetOptions
	t.Options = o.iscsiFlags.Options
	return iscsiFailed(cmd, storage.Serve(cmd.Context(), t, func(s storage.Served) error {
		return o.show(cmd, cmd.OutOrStdout(), s)
	}))
}
