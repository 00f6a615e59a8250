package reach

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procmapQuery is struct procmap_query of linux/fs.h.
type procmapQuery struct {
	size      uint64
	flags     uint64
	addr      uint64
	start     uint64
	end       uint64
	vmaFlags  uint64
	pageSize  uint64
	offset    uint64
	inode     uint64
	major     uint32
	minor     uint32
	nameSize  uint32
	buildSize uint32
	name      uint64
	build     uint64
}

const (
	procmapQueryLen     = 104
	ioctlProcmapQuery   = 3<<30 | procmapQueryLen<<16 | 'f'<<8 | 17 // _IOWR('f', 17, struct procmap_query)
	queryReadable       = 0x01
	queryWritable       = 0x02
	queryShared         = 0x08
	queryCoveringOrNext = 0x10
)

// ask fills q from the mappings of the descriptor of /proc/PID/maps.
func (q *procmapQuery) ask(fd int) error {
	q.size = procmapQueryLen
	_, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlProcmapQuery, uintptr(unsafe.Pointer(q)))
	runtime.KeepAlive(q)
	if err != 0 {
		return err
	}
	return nil
}
