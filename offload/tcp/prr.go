package tcp

// prr is Proportional Rate Reduction (RFC 9937). In fast recovery it limits the sent
// octets by the octets that have arrived, so that the window shrinks evenly and ACKs
// clock the sender. All fields are in octets. prr is used only with SACK. RFC 6582 does
// not use it.
type prr struct {
	flight    uint32 // octets in flight when recovery began (RecoverFS)
	delivered uint32 // octets delivered since then (prr_delivered)
	out       uint32 // octets sent since then (prr_out)
	cwnd      uint32
}

// startPRR begins a reduction. delivered is how many octets were delivered according to
// the ACK that began the reduction.
func (c *Conn) startPRR(delivered uint32) {
	c.loss.prr = prr{flight: max(c.q.flight-c.q.sacked+delivered, 1)}
	c.paceRecovery(delivered, false)
}

// paceRecovery implements RFC 9937 §6.2 for an ACK that has delivered octets. safe
// says that SND.UNA has moved and the ACK shows no further loss. The path keeps up
// then, and the window may grow back to the threshold by one segment more than was
// delivered (SSRB). Otherwise the window grows only by the delivered octets (CRB).
func (c *Conn) paceRecovery(delivered uint32, safe bool) {
	p, pipe, target := &c.loss.prr, int64(c.pipe()), int64(c.congestion.cc.Window())
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
		n = max(n, int64(c.path.emss())) // the first retransmission is sent at once
	}
	p.cwnd = uint32(pipe + max(n, 0))
}

// window returns how many octets may be in flight.
func (c *Conn) window() uint32 {
	if c.mode == fast && c.cut && c.sackOK {
		return c.loss.prr.cwnd
	}
	return c.congestion.cc.Window()
}
