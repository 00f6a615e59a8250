#include "go_asm.h"
#include "textflag.h"

// FOLD adds acc, moved on by the distance of the constants k, to what next
// holds: acc = acc.low*k.low + acc.high*k.high + next. tmp is overwritten.
#define FOLD(k, acc, tmp, next) \
	VPCLMULQDQ $0x00, k, acc, tmp \
	VPCLMULQDQ $0x11, k, acc, acc \
	VPTERNLOGD $0x96, next, tmp, acc

// CRCTAIL adds CX octets at SI to the remainder in DX with the
// instruction for it. The arguments are the labels of this use.
#define CRCTAIL(eight, four, two, one, done) \
eight: \
	CMPQ   CX, $8 \
	JB     four \
	CRC32Q 0(SI), DX \
	ADDQ   $8, SI \
	SUBQ   $8, CX \
	JMP    eight \
four: \
	TESTQ  $4, CX \
	JZ     two \
	CRC32L 0(SI), DX \
	ADDQ   $4, SI \
two: \
	TESTQ  $2, CX \
	JZ     one \
	CRC32W 0(SI), DX \
	ADDQ   $2, SI \
one: \
	TESTQ  $1, CX \
	JZ     done \
	CRC32B 0(SI), DX \
done:

// JOIN leaves the remainder of Z0 to Z3, which hold blocks in this order, in DX.
#define JOIN \
	FOLD(Z11, Z2, Z6, Z3) \
	VPCLMULQDQ $0x00, Z9, Z0, Z4 \
	VPCLMULQDQ $0x11, Z9, Z0, Z0 \
	VPCLMULQDQ $0x00, Z10, Z1, Z5 \
	VPCLMULQDQ $0x11, Z10, Z1, Z1 \
	VPTERNLOGD $0x96, Z4, Z5, Z0 \
	VPTERNLOGD $0x96, Z1, Z2, Z0 \
	VMOVDQU64 foldTable_lanes(DI), Z8 \
	VEXTRACTI32X4 $3, Z0, X1 \
	VPCLMULQDQ $0x00, Z8, Z0, Z4 \
	VPCLMULQDQ $0x11, Z8, Z0, Z0 \
	VPXORQ Z4, Z0, Z0 \
	VEXTRACTI32X4 $1, Z0, X2 \
	VEXTRACTI32X4 $2, Z0, X3 \
	VPXOR X1, X0, X0 \
	VPXOR X3, X2, X2 \
	VPXOR X2, X0, X0 \
	VMOVQ  X0, AX \
	VPEXTRQ $1, X0, BX \
	XORL   DX, DX \
	CRC32Q AX, DX \
	CRC32Q BX, DX \
	VZEROUPPER

// func foldWith(c *foldTable, state uint32, b []byte) uint32
TEXT ·foldWith(SB), NOSPLIT, $0-44
	MOVQ c+0(FP), DI
	MOVL state+8(FP), AX
	MOVQ b_base+16(FP), SI
	MOVQ b_len+24(FP), CX

	// The state is added to the first 32 bits.
	VMOVD     AX, X4
	VPXORQ    0(SI), Z4, Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	ADDQ      $256, SI
	SUBQ      $256, CX
	VBROADCASTI32X4 foldTable_four(DI), Z8
	VBROADCASTI32X4 foldTable_three(DI), Z9
	VBROADCASTI32X4 foldTable_two(DI), Z10
	VBROADCASTI32X4 foldTable_next(DI), Z11

four:
	CMPQ CX, $256
	JB   one
	FOLD(Z8, Z0, Z4, 0(SI))
	FOLD(Z8, Z1, Z5, 64(SI))
	FOLD(Z8, Z2, Z6, 128(SI))
	FOLD(Z8, Z3, Z7, 192(SI))
	ADDQ $256, SI
	SUBQ $256, CX
	JMP  four

	// Each further block goes to the register whose block is the earliest. The registers
	// do not wait for one another.
one:
	CMPQ CX, $64
	JB   join
	FOLD(Z8, Z0, Z4, 0(SI))
	VMOVDQA64 Z0, Z4
	VMOVDQA64 Z1, Z0
	VMOVDQA64 Z2, Z1
	VMOVDQA64 Z3, Z2
	VMOVDQA64 Z4, Z3
	ADDQ $64, SI
	SUBQ $64, CX
	JMP  one

join:
	JOIN
	CRCTAIL(tail8, tail4, tail2, tail1, done)
	MOVL   DX, ret+40(FP)
	RET

// func foldCopyWith(c *foldTable, state uint32, dst, src []byte) uint32
TEXT ·foldCopyWith(SB), NOSPLIT, $0-68
	MOVQ c+0(FP), DI
	MOVL state+8(FP), AX
	MOVQ dst_base+16(FP), R8
	MOVQ src_base+40(FP), SI
	MOVQ src_len+48(FP), CX

	// Stores that cross cache lines take twice as long. Of many octets the first go alone, so
	// that the others begin with a line.
	CMPQ CX, $2048
	JB   copyRest
	MOVQ R8, BX
	NEGQ BX
	ANDQ $63, BX
	SUBQ BX, CX

eightAhead:
	CMPQ   BX, $8
	JB     byteAhead
	MOVQ   0(SI), DX
	MOVQ   DX, 0(R8)
	CRC32Q DX, AX
	ADDQ   $8, SI
	ADDQ   $8, R8
	SUBQ   $8, BX
	JMP    eightAhead

byteAhead:
	TESTQ  BX, BX
	JZ     copyRest
	MOVB   0(SI), DX
	MOVB   DX, 0(R8)
	CRC32B DX, AX
	INCQ   SI
	INCQ   R8
	DECQ   BX
	JMP    byteAhead

copyRest:
	// The state is added to the first 32 bits.
	VMOVD     AX, X4
	VMOVDQU64 0(SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VMOVDQU64 Z0, 0(R8)
	VMOVDQU64 Z1, 64(R8)
	VMOVDQU64 Z2, 128(R8)
	VMOVDQU64 Z3, 192(R8)
	VPXORQ    Z4, Z0, Z0
	ADDQ      $256, SI
	ADDQ      $256, R8
	SUBQ      $256, CX
	VBROADCASTI32X4 foldTable_four(DI), Z8
	VBROADCASTI32X4 foldTable_three(DI), Z9
	VBROADCASTI32X4 foldTable_two(DI), Z10
	VBROADCASTI32X4 foldTable_next(DI), Z11

fourCopied:
	CMPQ CX, $256
	JB   oneCopied
	VMOVDQU64 0(SI), Z12
	VMOVDQU64 64(SI), Z13
	VMOVDQU64 128(SI), Z14
	VMOVDQU64 192(SI), Z15
	FOLD(Z8, Z0, Z4, Z12)
	FOLD(Z8, Z1, Z5, Z13)
	FOLD(Z8, Z2, Z6, Z14)
	FOLD(Z8, Z3, Z7, Z15)
	VMOVDQU64 Z12, 0(R8)
	VMOVDQU64 Z13, 64(R8)
	VMOVDQU64 Z14, 128(R8)
	VMOVDQU64 Z15, 192(R8)
	ADDQ $256, SI
	ADDQ $256, R8
	SUBQ $256, CX
	JMP  fourCopied

oneCopied:
	CMPQ CX, $64
	JB   joinCopied
	VMOVDQU64 0(SI), Z12
	FOLD(Z8, Z0, Z4, Z12)
	VMOVDQU64 Z12, 0(R8)
	VMOVDQA64 Z0, Z4
	VMOVDQA64 Z1, Z0
	VMOVDQA64 Z2, Z1
	VMOVDQA64 Z3, Z2
	VMOVDQA64 Z4, Z3
	ADDQ $64, SI
	ADDQ $64, R8
	SUBQ $64, CX
	JMP  oneCopied

joinCopied:
	JOIN

	// Each octet is read once: the source may change meanwhile.
eightCopied:
	CMPQ   CX, $8
	JB     byteCopied
	MOVQ   0(SI), AX
	MOVQ   AX, 0(R8)
	CRC32Q AX, DX
	ADDQ   $8, SI
	ADDQ   $8, R8
	SUBQ   $8, CX
	JMP    eightCopied
byteCopied:
	TESTQ  CX, CX
	JZ     doneCopied
	MOVB   0(SI), AX
	MOVB   AX, 0(R8)
	CRC32B AX, DX
	INCQ   SI
	INCQ   R8
	DECQ   CX
	JMP    byteCopied
doneCopied:
	MOVL   DX, ret+64(FP)
	RET

// FOLD256 is FOLD for processors without VPTERNLOGD.
#define FOLD256(k, acc, tmp, next) \
	VPCLMULQDQ $0x00, k, acc, tmp \
	VPCLMULQDQ $0x11, k, acc, acc \
	VPXOR next, tmp, tmp \
	VPXOR tmp, acc, acc

// func foldWith256(c *foldTable256, state uint32, b []byte) uint32
TEXT ·foldWith256(SB), NOSPLIT, $0-44
	MOVQ c+0(FP), DI
	MOVL state+8(FP), AX
	MOVQ b_base+16(FP), SI
	MOVQ b_len+24(FP), CX

	// The state is added to the first 32 bits.
	VMOVD   AX, X4
	VPXOR   0(SI), Y4, Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	ADDQ    $128, SI
	SUBQ    $128, CX
	VBROADCASTI128 foldTable256_four(DI), Y8
	VBROADCASTI128 foldTable256_three(DI), Y9
	VBROADCASTI128 foldTable256_two(DI), Y10
	VBROADCASTI128 foldTable256_next(DI), Y11

four256:
	CMPQ CX, $128
	JB   one256
	FOLD256(Y8, Y0, Y4, 0(SI))
	FOLD256(Y8, Y1, Y5, 32(SI))
	FOLD256(Y8, Y2, Y6, 64(SI))
	FOLD256(Y8, Y3, Y7, 96(SI))
	ADDQ $128, SI
	SUBQ $128, CX
	JMP  four256

one256:
	CMPQ CX, $32
	JB   join256
	FOLD256(Y8, Y0, Y4, 0(SI))
	VMOVDQA Y0, Y4
	VMOVDQA Y1, Y0
	VMOVDQA Y2, Y1
	VMOVDQA Y3, Y2
	VMOVDQA Y4, Y3
	ADDQ $32, SI
	SUBQ $32, CX
	JMP  one256

join256:
	FOLD256(Y11, Y2, Y6, Y3)
	VPCLMULQDQ $0x00, Y9, Y0, Y4
	VPCLMULQDQ $0x11, Y9, Y0, Y0
	FOLD256(Y10, Y1, Y5, Y2)
	VPXOR Y4, Y0, Y0
	VPXOR Y1, Y0, Y0

	VMOVDQU foldTable256_lanes(DI), X8
	VEXTRACTI128 $1, Y0, X1
	VPCLMULQDQ $0x00, X8, X0, X4
	VPCLMULQDQ $0x11, X8, X0, X0
	VPXOR X4, X0, X0
	VPXOR X1, X0, X0

	// The remainder of the last block, by the instruction for it.
	VMOVQ  X0, AX
	VPEXTRQ $1, X0, BX
	XORL   DX, DX
	CRC32Q AX, DX
	CRC32Q BX, DX
	VZEROUPPER
	CRCTAIL(tail8of256, tail4of256, tail2of256, tail1of256, done256)
	MOVL   DX, ret+40(FP)
	RET

// func short(state uint32, b []byte) uint32
TEXT ·short(SB), NOSPLIT, $0-36
	MOVL state+0(FP), DX
	MOVQ b_base+8(FP), SI
	MOVQ b_len+16(FP), CX
	CRCTAIL(short8, short4, short2, short1, doneShort)
	MOVL DX, ret+32(FP)
	RET

// func multiplies256() bool
TEXT ·multiplies256(SB), NOSPLIT, $0-1
	MOVL $0, AX
	CPUID
	CMPL AX, $7 // the highest leaf
	JB   none
	MOVL $7, AX
	MOVL $0, CX
	CPUID
	SHRL $10, CX
	ANDL $1, CX
	MOVB CX, ret+0(FP)
	RET

none:
	MOVB $0, ret+0(FP)
	RET
