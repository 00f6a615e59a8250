package rdma

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/rdmap"
)

// config returns the configuration of the QP's machine.
func (qp *QP) config(number uint32) rdmap.Config {
	pd, cfg := qp.pd, &qp.cfg
	c := rdmap.Config{
		Number: number, Client: cfg.Client, ClientFrames: cfg.ClientFrames, PD: pd.domain, Table: pd.adapter.table, Board: pd.adapter.board,
		SendCQ: cfg.SendCQ.queue, RecvCQ: cfg.RecvCQ.queue, SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth,
		MaxSGE: cfg.MaxSGE, MaxInline: cfg.MaxInline, SignalAll: cfg.SQSigAll, Rate: cfg.Rate, Reactive: cfg.Reactive, Registers: cfg.RegMR, Hold: cfg.Hold, KeepReceives: cfg.KeepReceives,
		Denied: qp.denied,
	}
	if cfg.SRQ != nil {
		c.Shared, c.RecvPD = &cfg.SRQ.queue, cfg.SRQ.pd.domain
	}
	return c
}

// use is an object that counts the QP among its users.
type use struct {
	what  string // name in an error of join
	join  func() error
	leave func()
}

// uses returns the objects that the QP uses.
func (qp *QP) uses() []use {
	cfg, pd := &qp.cfg, qp.pd
	all := []use{
		{"", func() error { return pd.enter(&pd.qps) }, func() { pd.leave(&pd.qps) }},
		{"SendCQ: ", func() error { return cfg.SendCQ.join(qp) }, func() { cfg.SendCQ.leave(qp) }},
		{"RecvCQ: ", func() error { return cfg.RecvCQ.join(qp) }, func() { cfg.RecvCQ.leave(qp) }},
	}
	if cfg.SRQ != nil {
		all = append(all, use{"SRQ: ", func() error { return cfg.SRQ.join(qp) }, func() { cfg.SRQ.leave(qp) }})
	}
	return all
}

// enlist adds the QP to its PD, its CQs, its SRQ and its adapter.
func (qp *QP) enlist() error {
	all := qp.uses()
	for i, u := range all {
		if err := u.join(); err != nil {
			for _, joined := range all[:i] {
				joined.leave()
			}
			return fmt.Errorf("%s%w", u.what, err)
		}
	}
	qp.adapter.mu.Lock()
	tooLate := qp.adapter.shut // Close has begun and would not find the QP
	if !tooLate {
		qp.adapter.qps[qp] = struct{}{}
	}
	qp.adapter.mu.Unlock()
	if tooLate {
		qp.delist()
		return fmt.Errorf("the adapter is %w", ErrClosed)
	}
	return nil
}

func (qp *QP) delist() {
	qp.detach()
	qp.adapter.device.Depart(qp.connection())
	qp.adapter.retire(qp)
	for _, u := range qp.uses() {
		u.leave()
	}
}
