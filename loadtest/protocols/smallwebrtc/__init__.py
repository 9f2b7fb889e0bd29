"""The wire of Pipecat's SmallWebRTC: `signaling` opens it, `caller` speaks RTVI over its data channel."""
