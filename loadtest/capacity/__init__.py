"""`voiceprobe capacity`: how many concurrent callers an endpoint serves within its objectives."""
