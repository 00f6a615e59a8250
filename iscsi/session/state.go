package session

import "fmt"

// State is a state of a session.
type State uint8

const (
	Down  State = iota // there is no connection, and none is wanted
	Login              // a login is under way
	Up                 // commands move
	Held               // the connection is lost; commands wait for the next login
	Lost               // the session cannot be reinstated; its commands have completed
)

func (s State) String() string {
	switch s {
	case Down:
		return "down"
	case Login:
		return "login"
	case Up:
		return "up"
	case Held:
		return "held"
	case Lost:
		return "lost"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// event is what moves a session from state to state.
type event uint8

const (
	evOpen    event = iota // the owner wants the session
	evUp                   // the login has succeeded
	evBroken               // the connection, or an attempt to make one, has failed
	evRetry                // the time for the next login has come
	evGivenUp              // no other login is possible, or wanted
	evClosed               // the owner has ended the session
	events
)

// next is the life cycle. An event that does not change a state is not permitted there.
func (s State) next(e event) (_ State, permitted bool) {
	switch {
	case e == evOpen && s == Down:
		return Login, true
	case e == evUp && s == Login:
		return Up, true
	case e == evBroken && (s == Login || s == Up):
		return Held, true
	case e == evRetry && s == Held:
		return Login, true
	case e == evGivenUp && (s == Login || s == Held):
		return Lost, true
	case e == evClosed && s != Down:
		return Down, true
	}
	return s, false
}
