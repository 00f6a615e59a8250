package storage

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// pages has the pages of vital product data whose fields are known.
var pages = map[uint8]struct {
	word  string // on the command line
	name  string // of SPC-4 and SBC-3
	parse func(b []byte) ([]row, error)
}{
	scsi.PageSupported:       {"supported", "Supported VPD Pages", supportedRows},
	scsi.PageSerial:          {"serial", "Unit Serial Number", serialRows},
	scsi.PageIdentification:  {"id", "Device Identification", idRows},
	scsi.PageExtended:        {"extended", "Extended INQUIRY Data", extendedRows},
	scsi.PageLimits:          {"limits", "Block Limits", limitRows},
	scsi.PageCharacteristics: {"characteristics", "Block Device Characteristics", characteristicRows},
	scsi.PageProvisioning:    {"provisioning", "Logical Block Provisioning", provisioningRows},
}

// PageNames returns the names of pages that Page understands.
func PageNames() (names []string) {
	for _, p := range pages {
		names = append(names, p.word)
	}
	slices.Sort(names)
	return names
}

// VPD asks a logical unit for a page of vital product data.
func VPD(ctx context.Context, o Options, url string, code uint8) (a Answer, err error) {
	err = o.session(ctx, url, func(s *iscsi.Session, lun uint16) error {
		b, err := page(ctx, s, lun, code)
		if refused(err) {
			return fmt.Errorf("the unit has no page 0x%02x (%w): see which it has by --vpd supported", code, err)
		}
		if err != nil {
			return err
		}
		p, name := pages[code], "Vital Product Data"
		var rows []row
		if p.parse != nil {
			name = p.name
			if rows, err = p.parse(b); err != nil {
				return fmt.Errorf("page 0x%02x: %w", code, err)
			}
		}
		a = newAnswer(url, name, rows)
		a.Page, a.Hex = &code, hex.EncodeToString(b)
		return nil
	})
	return a, err
}

func supportedRows(b []byte) ([]row, error) {
	list, err := scsi.ParseSupported(b)
	codes := make([]string, 0, len(list))
	for _, c := range list {
		codes = append(codes, fmt.Sprintf("0x%02x", c))
	}
	return []row{{"pages", "Pages", codes}}, err
}

func serialRows(b []byte) ([]row, error) {
	serial, err := scsi.ParseSerial(b)
	return []row{{"serial", "Unit Serial Number", serial}}, err
}

// designators has the names of the types of designators (SPC-4 table 536).
var designators = map[scsi.DesignatorType]string{
	scsi.DesignatorVendor: "vendor", scsi.DesignatorT10: "t10", scsi.DesignatorEUI64: "eui64", scsi.DesignatorNAA: "naa",
	scsi.DesignatorPort: "relative_port", scsi.DesignatorPortGroup: "port_group", scsi.DesignatorUnitGroup: "unit_group",
	scsi.DesignatorMD5: "md5", scsi.DesignatorSCSIName: "scsi_name", scsi.DesignatorProtocol: "protocol", scsi.DesignatorUUID: "uuid",
}

// idRows has a row for each designator, named after what it names and its type.
func idRows(b []byte) (rows []row, err error) {
	all, err := scsi.ParseIdentification(b)
	seen := map[string]int{}
	for _, d := range all {
		of := map[scsi.Association]string{scsi.OfUnit: "unit", scsi.OfPort: "port", scsi.OfTarget: "target"}[d.Association]
		name := of + "_" + designators[d.Type]
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s_%d", name, seen[name])
		}
		rows = append(rows, row{name, name, d.String()})
	}
	return rows, err
}

func extendedRows(b []byte) ([]row, error) {
	e, err := scsi.ParseExtended(b)
	return []row{
		{"head_of_queue", "HEADSUP", e.HeadOfQueue}, {"ordered", "ORDSUP", e.Ordered}, {"simple", "SIMPSUP", e.Simple},
		{"volatile_cache", "V_SUP", e.VolatileCache}, {"nonvolatile_cache", "NV_SUP", e.NonVolatileCache},
	}, err
}

func limitRows(b []byte) ([]row, error) {
	l, err := scsi.ParseLimits(b)
	return []row{
		{"max_transfer", "Maximum Transfer Length", l.MaxTransfer}, {"optimal_transfer", "Optimal Transfer Length", l.OptimalTransfer},
		{"optimal_granularity", "Optimal Transfer Length Granularity", l.OptimalGranularity},
		{"max_prefetch", "Maximum Prefetch Length", l.MaxPreFetch}, {"max_compare_and_write", "Maximum Compare And Write Length", l.MaxCompareAndWrite},
		{"max_unmap", "Maximum Unmap LBA Count", l.MaxUnmap}, {"max_unmap_extents", "Maximum Unmap Block Descriptor Count", l.MaxUnmapExtents},
		{"unmap_granularity", "Optimal Unmap Granularity", l.UnmapGranularity}, {"unmap_alignment", "Unmap Granularity Alignment", l.UnmapAlignment},
		{"max_write_same", "Maximum Write Same Length", l.MaxWriteSame}, {"write_same_nonzero", "WSNZ", l.NoZeroWriteSame},
		{"max_atomic", "Maximum Atomic Transfer Length", l.MaxAtomic}, {"atomic_alignment", "Atomic Alignment", l.AtomicAlignment},
		{"atomic_granularity", "Atomic Transfer Length Granularity", l.AtomicGranularity},
	}, err
}

func characteristicRows(b []byte) ([]row, error) {
	c, err := scsi.ParseCharacteristics(b)
	return []row{
		{"rotation_rate", "Medium Rotation Rate", c.RotationRate}, {"form_factor", "Nominal Form Factor", c.FormFactor}, {"fua_sync", "FUAB", c.FUASync},
	}, err
}

func provisioningRows(b []byte) ([]row, error) {
	p, err := scsi.ParseProvisioning(b)
	return []row{
		{"unmap", "LBPU", p.Unmap}, {"write_same_16", "LBPWS", p.WriteSame16}, {"write_same_10", "LBPWS10", p.WriteSame10},
		{"reads_zero", "LBPRZ", p.ReadsZero}, {"anchors", "ANC_SUP", p.Anchors}, {"type", "Provisioning Type", p.Type}, {"threshold", "Threshold Exponent", p.Threshold},
	}, err
}
