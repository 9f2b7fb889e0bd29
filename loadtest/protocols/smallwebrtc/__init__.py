"""The wire of Pipecat's SmallWebRTC: `caller` opens it by HTTP, and speaks RTVI over its data channel."""
