#include "textflag.h"

// func prefetch(first, last *byte)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ first+0(FP), AX
	MOVQ last+8(FP), BX
	ANDQ $-64, AX

next:
	PREFETCHT0 (AX)
	ADDQ       $64, AX
	CMPQ       AX, BX
	JLS        next
	RET
