package doctor

// BindQueues is the probe for kernels that do not report which queues have a socket.
var BindQueues = bindQueues
