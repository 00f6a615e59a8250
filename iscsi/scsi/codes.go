package scsi

import "fmt"

// Code is an additional sense code and its qualifier, the code in the high octet (SPC-4
// annex F.2).
type Code uint16

// The codes that this project sends or acts on.
const (
	NoAdditionalSense             Code = 0x0000
	BecomingReady                 Code = 0x0401
	InitializingCommandRequired   Code = 0x0402
	FormatInProgress              Code = 0x0404
	AsymmetricTransition          Code = 0x040a
	TargetPortStandby             Code = 0x040b
	TargetPortUnavailable         Code = 0x040c
	SanitizeInProgress            Code = 0x041b
	WriteError                    Code = 0x0c00
	UnexpectedUnsolicitedData     Code = 0x0c0c
	NotEnoughUnsolicitedData      Code = 0x0c0d
	InvalidFieldInInformationUnit Code = 0x0e03
	UnrecoveredReadError          Code = 0x1100
	ReadErrorLBAMarkedBad         Code = 0x1114
	ParameterListLengthError      Code = 0x1a00
	MiscompareDuringVerify        Code = 0x1d00
	InvalidOperationCode          Code = 0x2000
	LBAOutOfRange                 Code = 0x2100
	InvalidFieldInCDB             Code = 0x2400
	LogicalUnitNotSupported       Code = 0x2500
	InvalidFieldInParameterList   Code = 0x2600
	InvalidReleaseOfReservation   Code = 0x2604
	WriteProtected                Code = 0x2700
	SoftwareWriteProtected        Code = 0x2702
	SpaceAllocationFailed         Code = 0x2707
	MediumMayHaveChanged          Code = 0x2800
	PowerOn                       Code = 0x2900
	PowerOnOccurred               Code = 0x2901
	BusReset                      Code = 0x2902
	DeviceReset                   Code = 0x2903
	NexusLoss                     Code = 0x2907
	ParametersChanged             Code = 0x2a00
	ModeParametersChanged         Code = 0x2a01
	ReservationsPreempted         Code = 0x2a03
	ReservationsReleased          Code = 0x2a04
	RegistrationsPreempted        Code = 0x2a05
	AsymmetricAccessChanged       Code = 0x2a06
	CapacityDataChanged           Code = 0x2a09
	CommandsClearedByAnother      Code = 0x2f00
	SanitizeFailed                Code = 0x3103
	SavingNotSupported            Code = 0x3900
	MediumNotPresent              Code = 0x3a00
	OperatingDefinitionChanged    Code = 0x3f00
	InquiryDataChanged            Code = 0x3f03
	ReportedLUNsChanged           Code = 0x3f0e
	InternalTargetFailure         Code = 0x4400
	ProtocolServiceCRCError       Code = 0x4705
	ConnectionLost                Code = 0x477f // SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT
	CommandPhaseError             Code = 0x4a00
	RemovalPrevented              Code = 0x5302
	InsufficientReservations      Code = 0x5502
	InsufficientRegistrations     Code = 0x5504
	ThresholdReached              Code = 0x3807
)

var codes = map[Code]string{
	NoAdditionalSense:             "NO ADDITIONAL SENSE INFORMATION",
	BecomingReady:                 "LOGICAL UNIT IS IN PROCESS OF BECOMING READY",
	InitializingCommandRequired:   "LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED",
	0x0400:                        "LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE",
	0x0403:                        "LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED",
	FormatInProgress:              "LOGICAL UNIT NOT READY, FORMAT IN PROGRESS",
	AsymmetricTransition:          "LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION",
	TargetPortStandby:             "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE",
	TargetPortUnavailable:         "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE",
	SanitizeInProgress:            "LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS",
	WriteError:                    "WRITE ERROR",
	UnexpectedUnsolicitedData:     "WRITE ERROR - UNEXPECTED UNSOLICITED DATA",
	NotEnoughUnsolicitedData:      "WRITE ERROR - NOT ENOUGH UNSOLICITED DATA",
	InvalidFieldInInformationUnit: "INVALID FIELD IN COMMAND INFORMATION UNIT",
	UnrecoveredReadError:          "UNRECOVERED READ ERROR",
	ReadErrorLBAMarkedBad:         "READ ERROR - LBA MARKED BAD BY APPLICATION CLIENT",
	ParameterListLengthError:      "PARAMETER LIST LENGTH ERROR",
	MiscompareDuringVerify:        "MISCOMPARE DURING VERIFY OPERATION",
	InvalidOperationCode:          "INVALID COMMAND OPERATION CODE",
	LBAOutOfRange:                 "LOGICAL BLOCK ADDRESS OUT OF RANGE",
	InvalidFieldInCDB:             "INVALID FIELD IN CDB",
	LogicalUnitNotSupported:       "LOGICAL UNIT NOT SUPPORTED",
	InvalidFieldInParameterList:   "INVALID FIELD IN PARAMETER LIST",
	InvalidReleaseOfReservation:   "INVALID RELEASE OF PERSISTENT RESERVATION",
	WriteProtected:                "WRITE PROTECTED",
	SoftwareWriteProtected:        "LOGICAL UNIT SOFTWARE WRITE PROTECTED",
	SpaceAllocationFailed:         "SPACE ALLOCATION FAILED WRITE PROTECT",
	MediumMayHaveChanged:          "NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED",
	PowerOn:                       "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED",
	PowerOnOccurred:               "POWER ON OCCURRED",
	BusReset:                      "SCSI BUS RESET OCCURRED",
	DeviceReset:                   "BUS DEVICE RESET FUNCTION OCCURRED",
	NexusLoss:                     "I_T NEXUS LOSS OCCURRED",
	ParametersChanged:             "PARAMETERS CHANGED",
	ModeParametersChanged:         "MODE PARAMETERS CHANGED",
	ReservationsPreempted:         "RESERVATIONS PREEMPTED",
	ReservationsReleased:          "RESERVATIONS RELEASED",
	RegistrationsPreempted:        "REGISTRATIONS PREEMPTED",
	AsymmetricAccessChanged:       "ASYMMETRIC ACCESS STATE CHANGED",
	CapacityDataChanged:           "CAPACITY DATA HAS CHANGED",
	CommandsClearedByAnother:      "COMMANDS CLEARED BY ANOTHER INITIATOR",
	SanitizeFailed:                "SANITIZE COMMAND FAILED",
	SavingNotSupported:            "SAVING PARAMETERS NOT SUPPORTED",
	MediumNotPresent:              "MEDIUM NOT PRESENT",
	OperatingDefinitionChanged:    "TARGET OPERATING CONDITIONS HAVE CHANGED",
	InquiryDataChanged:            "INQUIRY DATA HAS CHANGED",
	ReportedLUNsChanged:           "REPORTED LUNS DATA HAS CHANGED",
	InternalTargetFailure:         "INTERNAL TARGET FAILURE",
	ProtocolServiceCRCError:       "PROTOCOL SERVICE CRC ERROR",
	ConnectionLost:                "SOME COMMANDS CLEARED BY ISCSI PROTOCOL EVENT",
	CommandPhaseError:             "COMMAND PHASE ERROR",
	RemovalPrevented:              "MEDIUM REMOVAL PREVENTED",
	InsufficientReservations:      "INSUFFICIENT RESERVATION RESOURCES",
	InsufficientRegistrations:     "INSUFFICIENT REGISTRATION RESOURCES",
	ThresholdReached:              "THIN PROVISIONING SOFT THRESHOLD REACHED",
}

func (c Code) String() string {
	if name := codes[c]; name != "" {
		return name
	}
	return fmt.Sprintf("additional sense code %02x/%02x", uint8(c>>8), uint8(c))
}
