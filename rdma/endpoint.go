package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// endpointMemory is the default size in octets of an Endpoint's own region.
const endpointMemory = 64 << 10

// EndpointConfig is the configuration of an Endpoint. The zero value works.
// CreateEndpoint then makes a PD, two CQs, a QP and a region of 64 KiB that only this
// end may write to. Objects that the caller passes in (MR, PD, CQs) remain the caller's.
// The Endpoint's Close leaves them open.
type EndpointConfig struct {
	// PD is the protection domain. nil means the PD of MR or, without MR, a new one.
	// Endpoints whose peers may use the same regions share a PD.
	PD *PD

	// MR is a region that the Endpoint uses instead of one of its own. MR must be of PD.
	// Memory, Size and Access must be zero if MR is set.
	MR *MR

	// Memory becomes the Endpoint's region (PD.RegMR). Memory may be any memory of the
	// program. The program must not unmap it before Close. Size must be 0 if Memory is
	// set.
	Memory []byte

	// Size is the length of the Endpoint's region in octets. The octets come from the
	// region heap and are zero (PD.AllocMR). 0 means 65536.
	Size int

	// Access is the set of rights to the Endpoint's region. 0 means LocalWrite. With
	// LocalWrite, receives and Reads of this end may write to the region, and the peer
	// has no access.
	Access Access

	// OneCQ makes one CQ for both queues. SendCQ and RecvCQ of the Endpoint are then the
	// same CQ.
	OneCQ bool

	// QP is the configuration of the QP. For a CQ that is nil, CreateEndpoint makes one
	// as deep as its queues. With an SRQ, the receives are posted to the SRQ.
	QP QPConfig
}

// Endpoint is one end of one connection with everything that it needs: PD, CQs, QP and
// a region of registered memory, made by one call. librdmacm's rdma_create_ep makes the
// same. The fields are for direct use: a program that needs more than one region or
// several QPs makes them with the same PD and CQs.
//
//	ep, err := adapter.CreateEndpoint(rdma.EndpointConfig{})
//	...
//	defer ep.Close()
//	ep.QP.PostRecv(...)                                     // before the peer sends
//	err = ep.Dial(ctx, address, rdma.ConnParams{})          // the one end
//	err = ep.Accept(ctx, request, rdma.ConnParams{})        // the other
//	ep.QP.PostSend(...)
//	completion, err := ep.Sent(ctx)
//	err = ep.QP.Disconnect(ctx)
//
// An Endpoint is safe for concurrent use. Do not change its fields.
type Endpoint struct {
	PD     *PD
	SendCQ *CQ // CQ for requests of PostSend
	RecvCQ *CQ // CQ for requests of PostRecv, of the QP or of its SRQ
	QP     *QP
	MR     *MR

	own []io.Closer // parts that Close closes, in this order
}

// CreateEndpoint makes an Endpoint that is not connected yet. Post receives to it before
// Dial or Accept, because a message that finds no receive ends the connection.
//
// If a step fails, CreateEndpoint closes everything that earlier steps have made.
// Errors: those of AllocPD, CreateCQ, AllocMR, RegMR and CreateQP, and one that says
// which fields of cfg contradict each other.
func (a *Adapter) CreateEndpoint(cfg EndpointConfig) (*Endpoint, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("create endpoint: %w", err)
	}
	e := &Endpoint{PD: cfg.PD, SendCQ: cfg.QP.SendCQ, RecvCQ: cfg.QP.RecvCQ, MR: cfg.MR}
	if err := e.make(a, cfg); err != nil {
		return nil, fmt.Errorf("create endpoint: %w", errors.Join(err, e.Close()))
	}
	return e, nil
}

// fill sets the defaults of c, or returns one error with every contradiction in it.
func (c EndpointConfig) fill() (EndpointConfig, error) {
	var errs []error
	wrong := func(bad bool, what string) {
		if bad {
			errs = append(errs, errors.New(what))
		}
	}
	if c.MR != nil {
		wrong(c.Memory != nil || c.Size != 0 || c.Access != 0, "MR is set: leave Memory, Size and Access out")
		wrong(c.PD != nil && c.PD != c.MR.pd, "MR is of another protection domain than PD: leave PD out")
		c.PD = c.MR.pd
	}
	wrong(c.Memory != nil && c.Size != 0, "Memory and Size are set: choose one")
	wrong(c.OneCQ && (c.QP.SendCQ != nil || c.QP.RecvCQ != nil), "OneCQ and a CQ are set: choose one")
	if c.Size == 0 {
		c.Size = endpointMemory
	}
	if c.Access == 0 {
		c.Access = LocalWrite
	}
	return c, errors.Join(errs...)
}

// make makes every part that the caller has not passed in. On an error, Close closes the
// parts that have been made.
func (e *Endpoint) make(a *Adapter, cfg EndpointConfig) (err error) {
	if e.PD == nil {
		if e.PD, err = a.AllocPD(); err != nil {
			return err
		}
		e.owns(e.PD)
	}
	if e.MR == nil {
		if e.MR, err = cfg.register(e.PD); err != nil {
			return err
		}
		e.owns(e.MR)
	}
	if err := e.makeCQs(a, cfg); err != nil {
		return err
	}
	cfg.QP.SendCQ, cfg.QP.RecvCQ = e.SendCQ, e.RecvCQ
	if e.QP, err = e.PD.CreateQP(cfg.QP); err != nil {
		return err
	}
	e.owns(e.QP)
	return nil
}

// register registers the Endpoint's own region: Memory if it is set, otherwise octets of
// the region heap.
func (c EndpointConfig) register(pd *PD) (*MR, error) {
	if c.Memory != nil {
		return pd.RegMR(c.Memory, c.Access)
	}
	return pd.AllocMR(c.Size, c.Access)
}

func (e *Endpoint) makeCQs(a *Adapter, cfg EndpointConfig) (err error) {
	sends, receives := depthOr(cfg.QP.SendDepth), depthOr(cfg.QP.RecvDepth)
	if cfg.QP.SRQ != nil {
		receives = cfg.QP.SRQ.cfg.Depth
	}
	if cfg.OneCQ {
		sends += receives
	}
	if e.SendCQ == nil {
		if e.SendCQ, err = a.CreateCQ(sends); err != nil {
			return err
		}
		e.owns(e.SendCQ)
	}
	if cfg.OneCQ {
		e.RecvCQ = e.SendCQ
	}
	if e.RecvCQ == nil {
		if e.RecvCQ, err = a.CreateCQ(receives); err != nil {
			return err
		}
		e.owns(e.RecvCQ)
	}
	return nil
}

// depthOr returns the depth of a queue for the depth n in QPConfig. 0 means the default.
func depthOr(n int) int {
	if n == 0 {
		return presetDepth
	}
	return n
}

// owns adds a part. Close closes it before every part that was added earlier.
func (e *Endpoint) owns(part io.Closer) { e.own = append([]io.Closer{part}, e.own...) }

// Dial connects the Endpoint to a Listener at address, "host:port". Dial calls QP.Dial
// and returns its errors.
func (e *Endpoint) Dial(ctx context.Context, address string, p ConnParams) error {
	return e.QP.Dial(ctx, address, p)
}

// Accept connects the Endpoint to the peer of the request. Accept calls
// ConnRequest.Accept and returns its errors.
func (e *Endpoint) Accept(ctx context.Context, r *ConnRequest, p ConnParams) error {
	return r.Accept(ctx, e.QP, p)
}

// Sent waits for the next completion of a request that was posted with PostSend, and
// removes it from SendCQ. If the error comes with a completion, the request failed:
// Completion.Status is not Success, and the error wraps the *QPError that ended the
// connection, if there is one. An error without a completion is one of CQ.Wait's, and no
// completion has been removed.
//
// Sent returns the next completion of SendCQ, whatever it completes. Use Sent only if no
// other queue uses SendCQ, not even the receive queue.
func (e *Endpoint) Sent(ctx context.Context) (Completion, error) { return e.next(ctx, e.SendCQ) }

// Received waits for the next completion of a request that was posted with PostRecv, as
// Sent does for PostSend. If either end has closed the connection in good order and no
// more messages come, the error is io.EOF.
func (e *Endpoint) Received(ctx context.Context) (Completion, error) { return e.next(ctx, e.RecvCQ) }

// next removes the next completion of cq. If its request failed, next returns the reason
// as the error.
func (e *Endpoint) next(ctx context.Context, cq *CQ) (Completion, error) {
	c, err := cq.Next(ctx)
	if err != nil || c.Status == Success {
		return c, err
	}
	select { // the QP knows the reason only when it is done
	case <-e.QP.Done():
	case <-ctx.Done():
		return c, fmt.Errorf("%v: %v: %w", c.Op, c.Status, context.Cause(ctx))
	}
	switch err := e.QP.Err(); {
	case err != nil:
		return c, fmt.Errorf("%v: %v: %w", c.Op, c.Status, err)
	case c.Op == WCRecv && c.Status == Flushed:
		return c, io.EOF
	}
	return c, fmt.Errorf("%v: %v", c.Op, c.Status)
}

// Close closes the QP, then the CQs, the region and the PD, as far as CreateEndpoint has
// made them. Close resets a connection that still exists. To end it in good order, call
// QP.Disconnect first. When Close returns, neither the peer nor a request has access to
// memory that was registered for the Endpoint. Other QPs lose access to the region too.
//
// If the program uses a CQ or the PD for something else, Close returns ErrInUse and
// leaves that part and the parts after it open. Close the other users then, and call
// Close again. Close may be called several times, and after the adapter's Close.
func (e *Endpoint) Close() error {
	for _, part := range e.own {
		if err := part.Close(); err != nil {
			return fmt.Errorf("close endpoint: %w", err)
		}
	}
	return nil
}
