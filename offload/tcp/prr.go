package tcp

// prr is Proportional Rate Reduction (RFC 9937): what may be sent in fast
// recovery follows what has arrived, so that the window shrinks evenly and the
// ACKs keep the clock. All are octets. Only with SACK; RFC 6582 does without.
type prr struct {
	flight    uint32 // in the network when recovery began (RecoverFS)
	delivered uint32 // since (prr_delivered)
	out       uint32 // sent since (prr_out)
	cwnd      uint32
}

// startPRR begins a reduction. The ACK that began it has delivered octets.
func (c *Conn) startPRR(delivered uint32) {
	c.prr = prr{flight: max(c.q.flight-c.q.sacked+delivered, 1)}
	c.paceRecovery(delivered, false)
}

// paceRecovery is RFC 9937 §6.2 for an ACK that has delivered octets. safe says that
// SND.UNA has moved and nothing more has turned out to be lost: the path keeps
// up, so the window may grow back to the threshold by a segment more (SSRB),
// else only by what was delivered (CRB).
func (c *Conn) paceRecovery(delivered uint32, safe bool) {
	p, pipe, target := &c.prr, int64(c.pipe()), int64(c.cc.Window())
	p.delivered += delivered
	var n int64
	if pipe > target {
		share := int64(p.delivered) * target
		n = (share+int64(p.flight)-1)/int64(p.flight) - int64(p.out)
	} else {
		n = max(int64(p.delivered)-int64(p.out), int64(delivered))
		if safe {
			n += int64(c.path.emss())
		}
		n = min(n, target-pipe)
	}
	if p.out == 0 {
		n = max(n, int64(c.path.emss())) // the first retransmission goes at once
	}
	p.cwnd = uint32(pipe + max(n, 0))
}

// window is how many octets may be in flight.
func (c *Conn) window() uint32 {
	if c.mode == fast && c.cut && c.sackOK {
		return c.prr.cwnd
	}
	return c.cc.Window()
}
