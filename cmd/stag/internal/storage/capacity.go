package storage

import (
	"context"

	"github.com/stag-rdma/stag/iscsi"
)

// Capacity asks a disk for its size.
func Capacity(ctx context.Context, o Options, url string) (a Answer, err error) {
	err = o.session(ctx, url, func(s *iscsi.Session, lun uint16) error {
		c, err := capacity(ctx, s, lun)
		if err != nil {
			return err
		}
		a = newAnswer(url, "Capacity", []row{
			{"blocks", "Blocks", c.Blocks}, {"block_size", "Block Size", c.BlockSize}, {"octets", "Total Size", c.Size()},
			{"physical_block_size", "Physical Block Size", c.BlockSize << c.PhysicalExponent}, {"lowest_aligned", "Lowest Aligned LBA", c.LowestAligned},
			{"thin", "LBPME", c.Thin}, {"reads_zero", "LBPRZ", c.ReadsZero}, {"protected", "PROT_EN", c.Protected},
		})
		return nil
	})
	return a, err
}
